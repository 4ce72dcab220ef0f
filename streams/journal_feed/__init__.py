"""Follows the whole journal from outside a node: for the ledger, `tail` and `top`.

Read `journal_reader` first.
"""
