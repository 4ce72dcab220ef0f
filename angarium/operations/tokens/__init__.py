"""The tokens of the HTTP API: made, listed, revoked.

Read first: secret.py, which says what a token looks like and how one is recognised.
"""
