"""The buckets that operators fill."""
