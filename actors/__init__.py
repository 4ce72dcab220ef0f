"""Angarium decides: receivers as state machines, and the actors that run them.

Read `machine` first (one receiver, pure), then `runtime` (the live actors of a shard). `policy` is a
receiver's configuration, `ports` declares what actors need from the outside world, `status` what they show.
"""
