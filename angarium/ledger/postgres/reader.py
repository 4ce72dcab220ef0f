"""The ledger in PostgreSQL, read-only."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from angarium.ledger.address import Database
from angarium.ledger.postgres.leases import APPLICATION
from angarium.ledger.postgres.session import BOUNDED, Session, opened
from angarium.ledger.postgres.store import has_tables
from angarium.ledger.postgres.tables import SHARE_COUNT, VERSION
from angarium.ledger.store import LedgerError


class PostgresReader:
    """Implements `angarium.ledger.queries.LedgerReader`."""

    shares = SHARE_COUNT

    def __init__(self, session: Session) -> None:
        self._session = session

    async def rows(self, query: str, *values: Any) -> list[Any]:
        return [tuple(row) for row in await self._session.rows(query, *values)]

    def by(self, index: str) -> str:
        return ""


@asynccontextmanager
async def postgres_reader(database: Database) -> AsyncIterator[PostgresReader]:
    """The ledger in this database. Raises LedgerError if there is none."""
    name, read_only = f"{APPLICATION}, reading", {"default_transaction_read_only": "on"}
    async with opened(database, name, **BOUNDED, **read_only) as session:
        if not await has_tables(session):
            raise LedgerError(
                f"there is no ledger in {database.shown}: "
                f"start one with angarium ledger --to {database.shown}"
            )
        ((version,),) = await session.rows("SELECT version FROM ledger")
        if version != VERSION:
            raise LedgerError(
                f"{database.shown} has version {version}, this Angarium knows {VERSION}: "
                "read it with the Angarium that writes it"
            )
        yield PostgresReader(session)
