"""Erases the content of events from every store: `erasures` are the requests, `search` finds messages.

Read `erasures` first, then `search`.
"""
