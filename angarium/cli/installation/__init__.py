"""The commands for operators of an installation: `setup`, `doctor`, `fleet`, `repair`, `token`.

Read `setup` first.
"""
