"""Readers of the whole record, for what owns no shard: the ledger, `tail`, `top` and the console.

Read `journal_reader` first, which follows the journal of all shards; `recent_flushes` reads its last seconds.
`bucket_reader` follows the configurations, and `all_snapshots` has the states of all receivers. What an
erasure has deleted from the journal is in `redacted_flushes`.
"""
