"""The ledger in a SQLite file, read-only."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from angarium.ledger.sqlite.driver import aiosqlite
from angarium.ledger.sqlite.store import BUSY_TIMEOUT_MS, ledger_errors
from angarium.ledger.sqlite.tables import VERSION
from angarium.ledger.store import LedgerError


class SqliteReader:
    """Implements `angarium.ledger.queries.LedgerReader`."""

    shares = 1

    def __init__(self, db: aiosqlite.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    async def rows(self, query: str, *values: Any) -> list[Any]:
        with ledger_errors(self._path):
            return list(await self._db.execute_fetchall(query, values))

    def by(self, index: str) -> str:
        return f"INDEXED BY {index}"


@asynccontextmanager
async def sqlite_reader(path: Path) -> AsyncIterator[SqliteReader]:
    """The ledger in this file. Raises LedgerError if there is none."""
    address = _read_only(path)
    with ledger_errors(path):
        db = await aiosqlite.connect(address, uri=True, timeout=BUSY_TIMEOUT_MS / 1000)
    try:
        with ledger_errors(path):
            (version,) = [row[0] for row in await db.execute_fetchall("PRAGMA user_version")]
        if version != VERSION:
            raise LedgerError(
                f"{path} has version {version}, this Angarium knows {VERSION}: "
                "read it with the Angarium that writes it"
            )
        yield SqliteReader(db, path)
    finally:
        # Otherwise a query that was given up would continue, and `close` would wait for it.
        await db.interrupt()
        await db.close()


def _read_only(path: Path) -> str:
    """The address of the file. Raises LedgerError if there is none."""
    if not path.is_file():
        raise LedgerError(
            f"there is no ledger {path}: start one with angarium ledger --to sqlite:///{path} "
            f"(angarium dev has one in its directory)"
        )
    return f"{path.absolute().as_uri()}?mode=ro"
