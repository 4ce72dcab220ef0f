"""Events for receivers that do not exist: one bounded record per shard turns them away together.

Read `record` first (which events wait), then `turns` (how they are decided).
"""
