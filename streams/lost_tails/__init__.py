"""Finds lost tails: messages that were read from a stream, which it no longer has.

Read `marks` first (the messages known of a stream), then `comparison`; `read_positions` does the same for a
bucket, which is read again from its beginning. `deletion` deletes a message only if it is still the one that
was read. `streams.journal.refusal` stops a shard that lost messages.
"""
