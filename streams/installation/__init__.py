"""The parts of an installation: names, streams, buckets, consumers, and what must hold of them.

Read `topology` first (all of it as data), then `requirements` and `setup`.
"""
