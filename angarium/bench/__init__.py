"""Benchmarks: Angarium compared with bare clients on the same machine, in the same run.

Read `deliver` first; `harness` is the base of all of them. `measuring` measures a process; `over_http` has
the HTTP clients and servers of `angarium bench api`, `console` measures pages of the console.
"""
