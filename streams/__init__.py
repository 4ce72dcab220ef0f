"""Angarium remembers: the only place that knows NATS.

Read `installation` first (what Angarium has in NATS), then `journal` (how nothing is lost), `reading` and
`routing`. `buckets` has the configurations and tokens, `control_requests` answers requests about receivers,
and `storage` deletes what is no longer needed.
"""
