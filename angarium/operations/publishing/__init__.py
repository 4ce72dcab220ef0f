"""Publishing: one event, or several, for a client that waits and for a command that has time.

Read `message` first: both publish it.
"""
