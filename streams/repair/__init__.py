"""Repairs shards that nodes refuse because their streams lost messages; upgrades streams of version 1.

Read `damage` first: what can be lost, and how it is found; then `acceptance`.
"""
