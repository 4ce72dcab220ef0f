"""Signing in: with a token, or with a link that holds one.

Read `sign_in` first. `portal` is the page of such a link.
"""
