"""Opens the ledger at an address: a file of SQLite, or a database of PostgreSQL.

The modules of the two drivers are imported where they are used, since each comes with an extra of its own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from angarium.ledger.locating import Database, locate
from angarium.ledger.questions import Questions
from angarium.ledger.store import Store


@asynccontextmanager
async def asked(location: str) -> AsyncIterator[Questions]:
    """The ledger at this address, for those who only read. Raises LedgerError if there is none."""
    match locate(location):
        case Path() as path:
            from angarium.ledger.sqlite.sqlite_reader import sqlite_reader

            async with sqlite_reader(path) as in_file:
                yield Questions(in_file)
        case Database() as database:
            from angarium.ledger.postgres.postgres_reader import postgres_reader

            async with postgres_reader(database) as in_database:
                yield Questions(in_database)


@asynccontextmanager
async def written(location: str, keep_s: float) -> AsyncIterator[Store]:
    """The ledger at this address for one who writes it; made if there is none. Raises LedgerError."""
    match locate(location):
        case Path() as path:
            from angarium.ledger.sqlite.alone import alone
            from angarium.ledger.sqlite.sqlite_store import sqlite_store

            async with sqlite_store(path) as in_file:
                with alone(path):
                    yield in_file
        case Database() as database:
            from angarium.ledger.postgres.postgres_store import postgres_store

            async with postgres_store(database, keep_s) as in_database:
                yield in_database
