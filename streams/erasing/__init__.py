"""Erases the content of events from every store: `erasures` are the requests, `search` finds messages."""
