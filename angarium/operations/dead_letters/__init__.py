"""Dead letters: find them, send them again, drop them.

Read `redrive` first; `pages` says which letters are meant and how progress is told.
"""
