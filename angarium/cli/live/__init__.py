"""The commands that show what happens now: `inspect` for one receiver, `top` and `tail` for all of them.

Read `inspection` first.
"""
