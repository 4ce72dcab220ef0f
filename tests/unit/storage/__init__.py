"""The choice of what is evicted."""
