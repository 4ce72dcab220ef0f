"""The memory of one actor, in pure parts: they hold and count, but do not await, decide or record.

Read `cursor` first (how far the stream is read, and what is left there), then `mailbox`, `unacked` (which
messages may be acked), `tokens`, `last_answers` and `unsaved_states`.
"""
