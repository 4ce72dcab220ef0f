"""Configurations and ids, and what is derived from states."""
