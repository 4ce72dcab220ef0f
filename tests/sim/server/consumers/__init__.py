"""Consumers of the server in memory, and the pull requests that wait at them."""
