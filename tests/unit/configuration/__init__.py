"""Configurations of receivers: parsing, bounds, defaults."""
