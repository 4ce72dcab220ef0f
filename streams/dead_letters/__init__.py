"""Dead letters: written with the reason, found again, sent again, dropped.

Read `bury` first (what a letter says), then `letters` and `redrive`.
"""
