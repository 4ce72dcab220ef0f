"""Attempts as they are recorded: read from the journal, and followed by `angarium tail` and the HTTP API.

Read `tail` first.
"""
