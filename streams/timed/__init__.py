"""Timed events: stored as entries, opened when due, taken once.

Read `docs/decisions/delivery-at-a-time.md` first, then `entries` and `opener`.
"""
