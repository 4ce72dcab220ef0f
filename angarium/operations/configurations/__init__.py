"""The configurations of receivers: put, show, change, remove.

Read `put` first. `trials` shows what a filter or a transform would do before it is put.
`angarium.operations.receiver_list.listing` lists them.
"""
