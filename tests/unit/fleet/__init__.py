"""Leases, and which node owns which shard."""
