"""The live actors of one shard: kept in memory, woken for work, performing the machine's steps.

Read `actor` first (one receiver at work), then `host` (all actors of a shard) and `residents` (which of them
are in memory). An actor has a `live_state`, its `pending` events and its `burials`; `discard` and the files
of `operator_actions` are operations on it. `eventless` makes handshakes and pings,
`unknown_receivers` has the events that have no actor, `flow_control` says when the shard continues to read,
and `alerts` watches the receivers.
"""
