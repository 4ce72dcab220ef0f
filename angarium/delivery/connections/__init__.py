"""Connections to receivers: which addresses may be reached, and which attempt gets a connection when.

Read `pool` first, then `guard` (addresses that are refused) and `slow_lane` (slow receivers kept apart). This
folder uses `http_exchange`, never the other way round.
"""
