"""Requests to the node that owns a receiver: show it, pause it, ping it, skip its oldest event.

Read `ask` first: it waits while a shard moves from one node to another.
"""
