"""The commands for operators of an installation: `setup`, `doctor`, `repair`, and the HTTP API's tokens.

Read `setup` first.
"""
