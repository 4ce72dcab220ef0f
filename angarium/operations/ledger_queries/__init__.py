"""Questions to the ledger about the past of receivers and events. No node is asked.

Read `attempts` first.
"""
