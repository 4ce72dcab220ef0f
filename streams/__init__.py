"""Angarium remembers: the only place that knows NATS.

Read `installation` first (what Angarium has in NATS), then `journal` (how nothing is lost), `reading` and
`routing`. The folders by subject:

- NATS, and what Angarium has in it: `nats`, `installation`.
- Who owns a shard, and its record: `journal`, `fleet`, `lost_tails`, `repair`.
- What comes in: `reading`, `routing`, `timed`, `buckets`, `sealing`.
- What becomes of events: `dead_letters`, `resending`, `erasing`, `storage`.
- For the world outside: `control_requests`, `journal_feed`, `observation`, `server`.
"""
