"""Lost tails: whether a stream still has the messages that were read from it.

Read `marks` first (what is known of a stream), then `comparison`; `places` does the same for a bucket, which
is read again from its beginning. What becomes of a shard that lost messages is said in
`streams.journal.refusal`.
"""
