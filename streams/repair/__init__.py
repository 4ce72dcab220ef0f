"""Repair of shards whose streams lost their tails, if nodes refuse them; the upgrade from version 1.

Read `damage` first: what can be lost, and how it is found; then `acceptance`.
"""
