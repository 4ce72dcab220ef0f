"""Angarium decides: receivers as state machines, and the actors that run them.

Read `machine` first (one receiver, pure), then `runtime` (the live actors of a shard). `configuration` says
what a receiver's configuration may contain, `memory` holds what is not in facts, `ports` declares what actors
need from the outside world, and `status` what they show.
"""
