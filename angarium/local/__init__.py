"""Tools that run beside a developer: `angarium dev` with a NATS of its own, and `angarium listen`.

Read `dev` first.
"""
