"""Angarium remembers: the only place that knows NATS.

Read `installation` first (what Angarium has in NATS), then `journal` (how nothing is lost), `reading` and
`routing`. `stores` has the configurations and tokens, `control` hears requests, `purge` makes room.
"""
