"""Addresses and names of receivers: what is resolved, and which are refused."""
