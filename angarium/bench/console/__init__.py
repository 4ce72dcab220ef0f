"""`angarium bench console`: the time that pages of the console take, with very many receivers and attempts.

Read `pages` first, which measures; `crowd` makes the installation.
"""
