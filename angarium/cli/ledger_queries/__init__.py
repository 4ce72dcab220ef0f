"""The commands that ask the ledger what happened: `attempts`, `event`, `history`, `minutes`, `audit`.

Read `attempts` first. `ask_ledger` asks it, and says how far behind the ledger is.
"""
