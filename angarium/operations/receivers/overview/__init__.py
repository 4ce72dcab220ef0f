"""The list of receivers, with the health of each: phase, backlog, pace, and what limits it.

Read `listing` first, then `pace`.
"""
