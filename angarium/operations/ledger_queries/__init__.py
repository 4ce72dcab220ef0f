"""Questions to the ledger: what happened to which receiver, and when. No node is asked.

Read `attempts` first.
"""
