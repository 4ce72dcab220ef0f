"""Texts of queries that depend on what is asked.

Read `attempts`, which is the only one.
"""
