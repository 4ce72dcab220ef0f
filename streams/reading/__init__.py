"""Reading the deliveries: from the consumer of a shard to the inbox of its actors, and the acks back.

Read `messages` first (what a message says), then `pull`, `reader` and `inbox`; `backlog` reads what was not
kept.
"""
