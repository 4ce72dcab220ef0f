"""Events for receivers that do not exist: one bounded record per shard turns them away together.

Read `record` first (which events wait), then `decision_rounds` (how they are decided).
"""
