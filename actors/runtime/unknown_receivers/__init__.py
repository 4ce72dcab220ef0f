"""Events for receivers that do not exist: one bounded record per shard turns them away together.

Read `unknown_receivers` first.
"""
