"""Room in the streams: `purge` deletes what is no longer needed, `eviction` chooses what gives way.

Read `purge` first. `sampling` estimates how much of a stream is whose.
"""
