"""Queries: their times and pages, and how the ledger is asked.

Read `ask_ledger` first.
"""
