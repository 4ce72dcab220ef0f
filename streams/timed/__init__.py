"""Timed events: stored as entries, published when due, taken once.

Read `docs/decisions/delivery-at-a-time.md` first, then `entries` and `due_publisher`.
"""
