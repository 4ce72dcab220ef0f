"""Routing: a copy of each event for every receiver that subscribes to it.

Read `router` first, then `lanes` (order within a receiver) and `freshness` (how old a configuration may be).
"""
