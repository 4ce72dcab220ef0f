"""Angarium remembers: the only place that knows NATS.

Read `installation` first (what Angarium has in NATS), then `journal` (how nothing is lost), `reading` and
`routing`. `receivers` holds the configurations, `control` answers requests, `purge` makes room.
"""
