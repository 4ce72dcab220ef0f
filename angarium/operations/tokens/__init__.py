"""Creates, lists and revokes the tokens of the HTTP API.

Read `secret` first: it says what a token looks like and how one is recognised.
"""
