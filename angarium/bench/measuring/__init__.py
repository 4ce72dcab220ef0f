"""Measuring of a process: what it uses, where its time goes, which calls it makes, how its loop keeps up.

Read `usage` first.
"""
