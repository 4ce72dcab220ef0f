"""The commands that run until they are stopped, each a process of an installation: `node`, `api`, `ledger`.

Read `node` first.
"""
