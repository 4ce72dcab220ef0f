"""Benchmarks: Angarium compared with bare clients on the same machine, in the same run.

Read `deliver` first; `ground` is what all of them stand on.
"""
