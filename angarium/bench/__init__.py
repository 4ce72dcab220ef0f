"""Benchmarks: Angarium compared with bare clients on the same machine, in the same run.

Read `deliver` first; `ground` is the base of all of them.
"""
