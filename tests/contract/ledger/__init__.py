"""The ledger, and what is asked of it."""
