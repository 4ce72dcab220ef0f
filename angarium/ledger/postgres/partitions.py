"""Partitions, one a period: created before they are needed, dropped when all their rows are too old.

Other statements do not wait for that. A table is created first and attached afterwards, and it is detached
`CONCURRENTLY` before it is dropped. Otherwise the whole table would be locked, and all later statements would
wait for the longest query.
"""

from angarium.ledger.postgres.driver import asyncpg
from angarium.ledger.postgres.session import Session
from angarium.ledger.postgres.tables import PARTITIONED, bounds
from angarium.ledger.store import LedgerError

_DETACHING = """
SELECT c.relname, i.inhdetachpending FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = ?::text::regclass AND c.relname = ?
"""


async def make(session: Session, period: int) -> None:
    """Create the partitions of a period, within a transaction, unless they exist."""
    if not await session.execute("INSERT INTO periods (period) VALUES (?) ON CONFLICT DO NOTHING", period):
        return
    for table in PARTITIONED:
        name, (first, end) = partition(table, period), bounds(table, period)
        await session.execute(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)")
        await session.execute(
            f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({end})"
        )


async def drop(session: Session, period: int) -> None:
    """Drop the partitions of a period. This can be repeated after an interruption."""
    for table in PARTITIONED:
        name = partition(table, period)
        await _detach(session, table, name)
        await session.execute(f"DROP TABLE IF EXISTS {name}")
    await session.execute("DELETE FROM periods WHERE period = ?", period)


async def _detach(session: Session, table: str, name: str) -> None:
    """Detach a partition that is still attached.

    A process that is gone may have left the same statement to PostgreSQL, which ends it at any moment.
    """
    while found := await session.rows(_DETACHING, table, name):
        how = "FINALIZE" if found[0][1] else "CONCURRENTLY"
        try:
            await session.execute(f"ALTER TABLE {table} DETACH PARTITION {name} {how}")
        except LedgerError as error:
            if not isinstance(error.__cause__, asyncpg.UndefinedTableError):
                raise


async def next_block(session: Session, period: int) -> int:
    """A new number for a block of that period."""
    async with session.transaction():
        await make(session, period)
        rows = await session.rows(
            "UPDATE periods SET blocks = blocks + 1 WHERE period = ? RETURNING blocks", period
        )
    if not rows:
        raise LedgerError(f"the partitions of the period {period} are gone: start angarium ledger again")
    return bounds("attempts", period)[0] + int(rows[0][0])


def partition(table: str, period: int) -> str:
    """The name of the partition of a table for a period."""
    return f"{table}_p{period}"


def blocks_of(period: int) -> tuple[int, int]:
    """The blocks of a period: from the first to below the second."""
    return bounds("attempts", period)
