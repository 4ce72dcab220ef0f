"""The configurations of receivers: put, show, list, remove.

Read `put` first.
"""
