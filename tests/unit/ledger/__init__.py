"""Pure parts of the ledger: sharing of shards, positions, the plot of an audit."""
