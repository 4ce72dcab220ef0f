"""The parts of an installation: names, streams, buckets, consumers, and the requirements on them.

Read `topology` first (all of it as data), then `requirements` and `setup`.
"""
