"""Lost tails: whether a stream still has the messages that were read from it.

Read `marks` first (the messages known of a stream), then `comparison`; `places` does the same for a bucket,
which is read again from its beginning. `deletion` deletes a message only if it is still the one that was
read. `streams.journal.refusal` stops a shard that lost messages.
"""
