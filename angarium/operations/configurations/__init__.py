"""The configurations of receivers: put, show, change, remove.

Read `put` first. `angarium.operations.receiver_list.listing` lists them.
"""
