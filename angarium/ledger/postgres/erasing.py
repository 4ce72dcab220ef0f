"""Erases what receivers answered to an event, which may repeat its body, in PostgreSQL.

Ids, numbers, times and counts stay. PostgreSQL keeps the rows as they were before, so the partitions with
such rows are written again after that. Its own write-ahead log holds them until it is recycled.
"""

from angarium.ledger.fold import without_answers
from angarium.ledger.postgres.periods import partition
from angarium.ledger.postgres.session import Session
from angarium.ledger.postgres.tables import period_of

_DELIVERIES = """
SELECT d.block, d.receiver, d.sequence
FROM blocks b JOIN deliveries d ON d.block = b.block AND d.event = ?2 JOIN receivers r ON r.id = d.receiver
WHERE starts_with(r.name, ?1::text || '.')
"""
_ATTEMPTS = """
UPDATE attempts a SET answer = NULL FROM blocks b
WHERE b.block >= ?1 AND a.block = b.block AND a.receiver = ?2 AND a.sequence = ?3
RETURNING a.block
"""
_FACTS = """
SELECT f.block, f.receiver, f.position, f.facts FROM blocks b JOIN facts f ON f.block = b.block
WHERE b.block >= ?1 AND f.receiver = ?2 AND strpos(f.facts, ?3::text) > 0 AND strpos(f.facts, '"answer"') > 0
"""
_FACTS_CHANGED = "UPDATE facts SET facts = ? WHERE block = ? AND receiver = ? AND position = ?"
_TABLES = ("attempts", "facts")


async def erase_answers(session: Session, tenant: str, event: str) -> set[int]:
    """Erase the answers within the transaction that the caller has begun; returns their periods."""
    changed = set[int]()
    for block, receiver, sequence in await session.rows(_DELIVERIES, tenant, event):
        changed |= {period_of(row[0]) for row in await session.rows(_ATTEMPTS, block, receiver, sequence)}
        for at, whose, position, facts in await session.rows(_FACTS, block, receiver, event):
            await session.execute(_FACTS_CHANGED, without_answers(facts, event), at, whose, position)
            changed.add(period_of(at))
    return changed


async def overwrite(session: Session, periods: set[int]) -> None:
    """Write the partitions of these periods again, without the rows as they were before."""
    for period in sorted(periods):
        for table in _TABLES:
            await session.execute(f"VACUUM (FULL) {partition(table, period)}")
