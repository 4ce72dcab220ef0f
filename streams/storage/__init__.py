"""Room in the streams: `purge` deletes unneeded messages, `eviction` chooses events to evict.

Read `purge` first. `sampling` estimates each tenant's share of a stream.
"""
