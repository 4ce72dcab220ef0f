"""Dead letters: written with the reason, found again, dropped.

Read `bury` first (what a letter says), then `letters`. `streams.resending.redrive` sends them again.
"""
