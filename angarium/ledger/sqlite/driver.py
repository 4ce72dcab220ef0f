"""Imports the driver of SQLite, which comes with the extra `ledger`, or says how to get it."""

from angarium.ledger.store import LedgerError

try:
    import aiosqlite as aiosqlite
except ImportError as error:
    raise LedgerError("a ledger needs aiosqlite: install the extra ledger (see README)") from error
