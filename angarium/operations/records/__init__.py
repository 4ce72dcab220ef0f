"""Questions to the ledger: what happened, to whom, when. None asks a node.

Read `attempts` first.
"""
