"""The live actors of one shard: they are held in memory, woken, and perform the machine's steps.

Read `actor` first (one receiver at work), then `host` (all actors of a shard). An actor consists of its
`live_state`, its `pending` events and its `burials`; `ping`, `skip` and `discard` are operations on it.
"""
