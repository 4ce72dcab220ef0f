"""The housekeeping of a node: rounds of maintenance, full streams, and the erasures that are requested."""
