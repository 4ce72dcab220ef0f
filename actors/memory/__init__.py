"""The memory of one actor, in pure parts: they hold and count; they do not await, decide or record.

Read `cursor` first (what is read from the stream, and what is left there), then `mailbox`, `unacked` (which
messages may be acked) and `tokens`.
"""
