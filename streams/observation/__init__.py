"""An installation seen from outside, by processes that run no shard: `doctor`, `receiver list`, the HTTP API.

Read `installation_status` first: shards and their owners. `receiver_snapshots` reads what nodes stored of
receivers, `unrouted_events` counts events that wait to be routed. Nothing is decided here.
"""
