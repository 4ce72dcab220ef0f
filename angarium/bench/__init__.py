"""Benchmarks: Angarium compared with bare clients on the same machine, in the same run.

Read `deliver` first; `harness` is the base of all of them.
"""
