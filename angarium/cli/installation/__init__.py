"""The commands for who runs an installation: `setup`, `doctor`, `repair`, and the tokens of the HTTP API.

Read `setup` first.
"""
