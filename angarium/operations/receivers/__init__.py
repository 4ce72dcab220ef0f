"""The configurations of receivers: put, show, change, remove.

Read `put` first. `angarium.operations.receiver_health.listing` lists them.
"""
