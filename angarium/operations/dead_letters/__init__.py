"""Dead letters: find them, send them again, drop them.

Read `redrive` first; `pages` reads the selected letters and reports progress.
"""
