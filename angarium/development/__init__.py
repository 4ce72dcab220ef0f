"""Tools for a developer's machine: `angarium dev` with its own NATS, and `angarium listen`.

Read `dev` first.
"""
