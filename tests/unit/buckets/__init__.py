"""The trail of changes in a stored configuration."""
