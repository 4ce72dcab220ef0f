"""Repair of shards whose streams lost their tails, the remedy if nodes refuse them; the upgrade from 0.1.

Read `damage` first: what can be lost, and how it is found; then `acceptance`.
"""
