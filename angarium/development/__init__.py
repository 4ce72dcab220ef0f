"""Tools for a developer's machine: `angarium dev` with its own NATS, and `angarium listen`.

Read `dev` first. `local_node` runs a node as a child process, for `demo`, `bench` and tests.
"""
