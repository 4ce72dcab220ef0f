"""Pure parts of the ledger: sharing of shards, positions, audits."""
