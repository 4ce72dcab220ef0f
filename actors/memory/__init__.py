"""The memory of a shard's actors, in pure parts that store and count, but never await, decide or record.

Of one actor: `cursor` (how far the stream is read, and what is left there), `mailbox`, `tokens`,
`last_answers`, and the messages of one receiver in `unacked`. Of a shard: the messages of all in `unacked`,
`retention`, `unsaved_states` and `failing_receivers`. Read `cursor` first.
"""
