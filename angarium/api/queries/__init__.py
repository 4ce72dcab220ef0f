"""Queries: their times and pages, and the questions that they become for the ledger.

Read `ledger` first.
"""
