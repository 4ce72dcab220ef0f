"""The commands that ask the ledger what happened: `attempts`, `event`, `history`, `minutes`, `audit`.

Read `attempts` first. `ledger_questions` asks, and says how far behind the ledger is.
"""
