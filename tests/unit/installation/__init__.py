"""Names and partitions."""
