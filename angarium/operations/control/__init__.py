"""Questions and orders to the node that owns a receiver: look at it, pause it, ping it, skip its head.

Read `ask` first: it waits while a shard moves from one node to another.
"""
