"""Ledger queries about the past of receivers and events. No node is asked.

Read `attempts` first.
"""
