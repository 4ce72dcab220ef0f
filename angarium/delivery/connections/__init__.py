"""Connections to receivers: which addresses may be reached, and who gets a connection when.

Read `pool` first, then `guard` (addresses that are refused) and `bulkhead` (slow receivers beside the
others).
"""
