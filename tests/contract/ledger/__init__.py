"""The ledger, and queries on it."""
