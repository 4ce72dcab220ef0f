"""Reading the deliveries: from the consumer of a shard to the inbox of its actors, and the acks back.

Read `messages` first (from a message to an event), then `pull`, `reader` and `inbox`; `backlog` reads events
that were left in the stream.
"""
