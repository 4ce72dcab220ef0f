"""A node: a member of the fleet that owns shards, answers for their receivers and reports its health.

Read `app` first (how a node is put together), then `node` (which shards it owns) and `shard` (one of them).
`metrics` are what it reports at each scrape; `housekeeping` is its work for the whole installation.
"""
