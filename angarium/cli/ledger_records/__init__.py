"""The commands that ask the ledger what happened: `attempts`, `event`, `history`, `minutes`, `audit`.

Read `attempts` first. `ledger_queries` asks the ledger, and says how far behind the ledger is.
"""
