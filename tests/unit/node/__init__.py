"""The metrics of a node."""
