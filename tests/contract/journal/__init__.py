"""Claim, journal, recovery and snapshots."""
