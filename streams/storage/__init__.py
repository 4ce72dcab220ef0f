"""Room in the streams: `purge` deletes unneeded messages, `eviction` chooses events to evict.

Read `purge` first. `settled` finds the position up to which receivers need nothing, `settled_purge` purges
that by subject, and `sampling` estimates how much of a stream is whose.
"""
