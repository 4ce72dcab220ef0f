"""Events: publish them, find where they wait, erase their content.

Read `message` first: `accept` publishes for a client that waits, `publish` for a command that has time.
"""
