"""Measures a process: its resources, where its time goes, its calls, and how late its loop is.

Read `usage` first.
"""
