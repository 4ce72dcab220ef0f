"""The commands for operators of an installation: `setup`, `doctor`, `fleet`, `key`, `repair`, `token`.

Read `setup` first.
"""
