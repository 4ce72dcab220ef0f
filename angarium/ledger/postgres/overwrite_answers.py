"""Erases receivers' answers to an event, which may repeat its body, in PostgreSQL.

Ids, numbers, times and counts stay. PostgreSQL keeps the rows as they were before, so the partitions with
such rows are written again after that. Its own write-ahead log holds them until it is recycled.
"""

import asyncio

from msgspec import Struct

from angarium.ledger.fold import without_answers
from angarium.ledger.postgres.partitions import partition
from angarium.ledger.postgres.session import Session
from angarium.ledger.postgres.tables import period_of

_DELIVERIES = """
SELECT d.block, d.receiver, d.sequence
FROM blocks b JOIN deliveries d ON d.block = b.block AND d.event = ?2 JOIN receivers r ON r.id = d.receiver
WHERE starts_with(r.name, ?1::text || '.')
"""
_PERIODS = """
SELECT DISTINCT a.block FROM blocks b JOIN attempts a ON a.block = b.block
WHERE b.block >= ?1 AND a.receiver = ?2 AND a.sequence = ?3
"""
_ATTEMPTS = """
UPDATE attempts a SET answer = NULL FROM blocks b
WHERE b.block >= ?1 AND a.block = b.block AND a.receiver = ?2 AND a.sequence = ?3 AND a.answer IS NOT NULL
"""
_FACTS = """
SELECT f.block, f.receiver, f.position, f.facts FROM blocks b JOIN facts f ON f.block = b.block
WHERE b.block >= ?1 AND f.receiver = ?2 AND strpos(f.facts, ?3::text) > 0 AND strpos(f.facts, '"answer"') > 0
"""
_FACTS_CHANGED = "UPDATE facts SET facts = ? WHERE block = ? AND receiver = ? AND position = ?"
_TABLES = ("attempts", "facts")
_SEEN = """
SELECT EXISTS (
    SELECT 1 FROM pg_stat_activity a LEFT JOIN pg_database d ON d.oid = a.datid
    WHERE a.pid <> pg_backend_pid() AND coalesce(d.datname = current_database(), true)
        AND greatest(age(a.backend_xid), age(a.backend_xmin)) >= age(?1::text::xid)
) OR EXISTS (
    SELECT 1 FROM pg_prepared_xacts
    WHERE database = current_database() AND age(transaction) >= age(?1::text::xid)
) OR EXISTS (SELECT 1 FROM pg_replication_slots WHERE age(xmin) >= age(?1::text::xid))
"""
"""Conditions that keep VACUUM from dropping the rows that a transaction has deleted."""
SEEN_FOR_S = 2.0
SEEN_POLL_S = 0.1


class ErasedAnswers(Struct, frozen=True):
    """The periods that have, or had, such answers, and whether any was still there."""

    periods: set[int]
    changed: bool


async def erase_answers(session: Session, tenant: str, event: str) -> ErasedAnswers:
    """Erase the answers within the transaction that the caller has begun.

    If that is repeated, the periods are the same: they may not have been written again.
    """
    periods, changed = set[int](), 0
    for block, receiver, sequence in await session.rows(_DELIVERIES, tenant, event):
        key = block, receiver, sequence
        periods |= {period_of(row[0]) for row in await session.rows(_PERIODS, *key)}
        changed += await session.execute(_ATTEMPTS, *key)
        for at, whose, position, facts in await session.rows(_FACTS, block, receiver, event):
            changed += await session.execute(
                _FACTS_CHANGED, without_answers(facts, event), at, whose, position
            )
            periods.add(period_of(at))
    return ErasedAnswers(periods, bool(changed))


async def transaction_id(session: Session) -> str:
    """The id of the transaction that the caller has begun."""
    ((found,),) = await session.rows("SELECT pg_current_xact_id()::xid::text")
    return str(found)


async def is_seen(session: Session, transaction: str) -> bool:
    """True if a reader still sees the rows from before that transaction, after a short wait.

    Once there is none, none comes: later snapshots are newer. Then VACUUM drops all of it.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + SEEN_FOR_S
    while (await session.rows(_SEEN, transaction))[0][0]:
        if loop.time() >= until:
            return True
        await asyncio.sleep(SEEN_POLL_S)
    return False


async def overwrite(session: Session, periods: set[int]) -> None:
    """Write the partitions of these periods again, without the rows as they were before."""
    for period in sorted(periods):
        for table in _TABLES:
            await session.execute(f"VACUUM (FULL) {partition(table, period)}")
