"""Scenarios about owners, snapshots and tails: what is left after a crash or a loss."""
