"""Timed events."""
