"""Erasing what an event held, wherever it is stored: `erasures` are the requests, `search` finds messages."""
