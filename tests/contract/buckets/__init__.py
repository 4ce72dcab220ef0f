"""The buckets of configurations and tokens."""
