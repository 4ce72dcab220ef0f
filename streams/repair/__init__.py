"""Repair of a shard whose streams lost their tails: the remedy if nodes refuse to run it.

Read `damage` first: what can be lost, and how it is found; then `acceptance`.
"""
