"""Limits of the HTTP API: what all requests hold together, and how much each token may publish."""
