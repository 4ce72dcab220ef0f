"""Timed events, over HTTP."""
