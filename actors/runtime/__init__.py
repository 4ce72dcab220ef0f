"""The live actors of one shard: what holds them in memory, wakes them and performs what the machine asks for.

Read `shell` first (one actor), then `host` (all actors of a shard). The rest is what an actor is made of: its
mailbox, its messages not yet acknowledged, its operations.
"""
