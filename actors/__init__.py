"""Angarium decides: receivers as state machines, and the actors that run them.

Read `machine` first (one receiver, pure), then `runtime` (the live actors of a shard). `policy` is a
receiver's configuration, `ports` what actors need of the world, `status` what they show.
"""
