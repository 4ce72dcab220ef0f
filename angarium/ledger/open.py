"""Opens the ledger at an address: a file of SQLite, or a database of PostgreSQL.

The modules of the two drivers are imported where they are used, since each driver is an optional dependency.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from angarium.ledger.address import Database, locate
from angarium.ledger.queries import LedgerQueries
from angarium.ledger.store import Store


@asynccontextmanager
async def open_for_queries(location: str) -> AsyncIterator[LedgerQueries]:
    """The ledger at this address, read-only. Raises LedgerError if there is none."""
    match locate(location):
        case Path() as path:
            from angarium.ledger.sqlite.reader import sqlite_reader

            async with sqlite_reader(path) as in_file:
                yield LedgerQueries(in_file)
        case Database() as database:
            from angarium.ledger.postgres.reader import postgres_reader

            async with postgres_reader(database) as in_database:
                yield LedgerQueries(in_database)


@asynccontextmanager
async def open_for_writing(location: str, keep_s: float) -> AsyncIterator[Store]:
    """The ledger at this address for its writer; it is created if there is none. Raises LedgerError."""
    match locate(location):
        case Path() as path:
            from angarium.ledger.sqlite.store import sqlite_store
            from angarium.ledger.sqlite.writer_lock import writer_lock

            async with sqlite_store(path) as in_file:
                with writer_lock(path):
                    yield in_file
        case Database() as database:
            from angarium.ledger.postgres.store import postgres_store

            async with postgres_store(database, keep_s) as in_database:
                yield in_database
