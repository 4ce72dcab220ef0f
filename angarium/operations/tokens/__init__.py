"""Creates, lists and revokes the tokens of the HTTP API, and makes links that sign in to the console.

Read `secret` first: it says what a token looks like and how one is recognised.
"""
