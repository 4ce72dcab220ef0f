"""Erases receivers' answers to an event, which may repeat its body, in a file of SQLite.

Ids, numbers, times and counts stay. Pages that SQLite has moved or freed may still hold a copy, so the whole
file is written again after that, and the write-ahead log is emptied.
"""

from angarium.ledger.fold import without_answers
from angarium.ledger.sqlite.driver import aiosqlite

_DELIVERIES = """
SELECT d.block, d.receiver, d.sequence FROM blocks b CROSS JOIN deliveries d, receivers r
WHERE d.block = b.block AND d.event = ?2 AND r.id = d.receiver
    AND substr(r.name, 1, length(?1) + 1) = ?1 || '.'
"""
_ATTEMPTS = """
UPDATE attempts SET answer = NULL
WHERE block IN (SELECT block FROM blocks WHERE block >= ?1) AND receiver = ?2 AND sequence = ?3
"""
_FACTS = """
SELECT f.block, f.receiver, f.position, f.facts FROM blocks b CROSS JOIN facts f
WHERE b.block >= ?1 AND f.block = b.block AND f.receiver = ?2
    AND instr(f.facts, ?3) AND instr(f.facts, '"answer"')
"""


async def erase_answers(db: aiosqlite.Connection, tenant: str, event: str) -> bool:
    """Erase the answers within the transaction that the caller has begun; False if the event is unknown."""
    deliveries = list(await db.execute_fetchall(_DELIVERIES, (tenant, event)))
    for block, receiver, sequence in deliveries:
        await db.execute(_ATTEMPTS, (block, receiver, sequence))
        for *key, facts in list(await db.execute_fetchall(_FACTS, (block, receiver, event))):
            await db.execute(
                "UPDATE facts SET facts = ? WHERE block = ? AND receiver = ? AND position = ?",
                (without_answers(facts, event), *key),
            )
    return bool(deliveries)


async def overwrite(db: aiosqlite.Connection) -> bool:
    """Write the whole file again, without its freed pages, and empty its log.

    False if another process still reads the old file: then both keep their content.
    """
    await db.execute("VACUUM")
    ((busy, *_),) = await db.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
    return not busy
