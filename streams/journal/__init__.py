"""The journal of a shard: facts appended behind a fence, and their recovery after a crash.

Read `fence` first (why exactly one owner can append), then `journal`, `claim` and `recovery`; `refusal`
records that a stream lost messages (`streams.repair.acceptance` accepts such a loss).
"""
