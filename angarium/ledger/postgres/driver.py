"""Imports the driver of PostgreSQL, which comes with the extra `postgres`, or says how to get it."""

from angarium.ledger.store import LedgerError

try:
    import asyncpg as asyncpg
except ImportError as error:
    raise LedgerError(
        "a ledger in PostgreSQL needs asyncpg: install the extra postgres (see README)"
    ) from error
