"""The configurations of receivers: put, show, change, remove.

Read `put` first. `angarium.operations.receivers.overview.listing` lists them.
"""
