"""The memory of one actor, in pure parts: they hold and count, and neither await, decide nor record.

Read `cursor` first (what is read from the stream, and what is left there), then `mailbox`, `unacked` (which
messages may be acked) and `tokens`.
"""
