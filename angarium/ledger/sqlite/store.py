"""Writes the ledger's tables in a file of SQLite. Its readers and its one writer do not wait (WAL).

`synchronous=NORMAL`: a machine that loses power may lose the last transactions, together with the position
that they stored; so the same facts are read from the journal again.
"""

import os
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from angarium.ledger import schema
from angarium.ledger.batch import (
    BaseRow,
    ConfigurationRow,
    EndedRow,
    HeldShare,
    ReceiverRow,
    RowBatch,
    base_row,
    configuration_row,
    note_unended,
    receiver_of,
)
from angarium.ledger.sqlite.driver import aiosqlite
from angarium.ledger.sqlite.overwrite_answers import erase_answers, overwrite
from angarium.ledger.sqlite.tables import TABLES, UPGRADES, VERSION
from angarium.ledger.store import Block, LeaseLost, LedgerError
from streams.lost_tails.marks import Mark
from streams.lost_tails.read_positions import BEGINNING, ReadPosition

BUSY_TIMEOUT_MS = 30_000
CACHE_KIB = 64 << 10
CHECKPOINT_PAGES = 4000
NAMES_PER_QUERY_MAX = 500

_ATTEMPT = "INSERT INTO attempts VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_BEGUN = "INSERT INTO deliveries VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_ENDED = """
UPDATE deliveries SET attempts = max(attempts, ?), first_at = coalesce(first_at, ?), ended_at = ?, ending = ?,
    reason = ? WHERE block = ? AND position = ? AND receiver = ? AND sequence = ?
"""
_ENDED_UNSEEN = "UPDATE deliveries SET ended_at = ? WHERE ending IS NULL AND ended_at IS NULL"
_MINUTE = """
INSERT INTO minutes VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET
    attempts = attempts + excluded.attempts, delivered = delivered + excluded.delivered,
    failed = failed + excluded.failed, throttled = throttled + excluded.throttled,
    dead = dead + excluded.dead, latency_us = latency_us + excluded.latency_us,
    latency_us_max = max(latency_us_max, excluded.latency_us_max),
    late_ms = late_ms + excluded.late_ms, late_ms_max = max(late_ms_max, excluded.late_ms_max),
    posts = posts + excluded.posts
"""
_TOUCHED = """
UPDATE receivers SET shard = ?, failing_since = ?, failures = ?, disabled = ?, paused = ?, last_at = ?,
    last_status = ?, last_error = ?, facts_since = ?, bytes_since = ?, base_bytes = ?, based_at = ?,
    last_position = ?
WHERE id = ?
"""
_BLOCK = """
INSERT INTO blocks VALUES (?,?,?,?,?,?) ON CONFLICT DO UPDATE SET
    last = excluded.last, since = min(since, excluded.since), until = max(until, excluded.until),
    facts = facts + excluded.facts
"""
_POSITION = """
INSERT INTO positions VALUES (?,?,?,?,?) ON CONFLICT DO UPDATE SET
    created = excluded.created, position = excluded.position, stored_at = excluded.stored_at,
    seen_at = coalesce(nullif(excluded.seen_at, 0), seen_at)
WHERE position = ? AND created IN (?, '')
"""
_RECEIVERS = """
SELECT name, id, shard, failing_since, failures, disabled, paused, last_at, last_status, last_error,
    facts_since, bytes_since, base_bytes, based_at, last_position
FROM receivers WHERE name IN ({names})
"""
_UNENDED = """
SELECT receiver, sequence, block, position, ended_at FROM deliveries
WHERE ending IS NULL AND receiver IN ({ids})
"""
_FACTS = """
SELECT f.position, f.at, f.facts FROM blocks b CROSS JOIN facts f
WHERE b.last > ?2 AND b.first <= ?3 AND f.block = b.block AND f.receiver = ?1 AND f.position > ?2
    AND f.position <= ?3
ORDER BY f.position
"""
_UNBASED = """
SELECT r.id, r.name, min(?2, coalesce((
    SELECT min(g.first) - 1 FROM gaps g, states s
    WHERE g.first <= ?2 AND g.last > f.base
        AND s.receiver = r.id AND s.position > ?2 AND s.origin = 'snapshot'), ?2)) AS up_to
FROM (
    SELECT receiver, max(position) AS position, coalesce(
        (SELECT max(s.position) FROM states s WHERE s.receiver = f.receiver AND s.position <= ?2), 0) AS base
    FROM facts f WHERE block = ?1 GROUP BY receiver
) f JOIN receivers r ON r.id = f.receiver
WHERE f.position > f.base
"""
"""Receivers with facts in a block that no base state up to its end covers, and up to where none of their
facts is missing: up to the end of the block, or to a gap if a snapshot follows it."""
_KEPT_ON = """
UPDATE OR IGNORE deliveries SET block = (SELECT min(block) FROM blocks WHERE block > ?1)
WHERE block = ?1 AND (ended_at IS NULL OR ended_at > ?2) AND EXISTS (SELECT 1 FROM blocks WHERE block > ?1)
"""
"""Deliveries that may have attempts in a later block stay as long as these."""
_HISTORY = {
    "changes": "EXISTS (SELECT 1 FROM changes newer WHERE newer.receiver = old.receiver "
    "AND newer.kind = old.kind AND newer.at > old.at",
    "paces": "EXISTS (SELECT 1 FROM paces newer WHERE newer.receiver = old.receiver AND newer.at > old.at",
    "configurations": "EXISTS (SELECT 1 FROM configurations newer WHERE newer.receiver = old.receiver "
    "AND newer.at > old.at",
    "claims": "EXISTS (SELECT 1 FROM claims newer WHERE newer.shard = old.shard AND newer.at > old.at",
    "states": "EXISTS (SELECT 1 FROM states newer WHERE newer.receiver = old.receiver "
    "AND newer.position > old.position",
}
"""Rows that are dropped once a newer one of their kind is too old: the last one before still applies."""
_BASED = """
UPDATE receivers SET facts_since = 0, bytes_since = 0, base_bytes = ?, based_at = ?
WHERE id = ? AND last_position <= ?
"""


class SqliteStore:
    """Implements `angarium.ledger.store.Store`. Made by `sqlite_store`."""

    def __init__(self, db: aiosqlite.Connection, path: Path) -> None:
        self._db = db
        self._path = path
        self._last_id = 0
        self._block = 1
        self._block_facts = 0

    async def begin(self) -> None:
        """Create the tables if there are none. Raises LedgerError if a newer Angarium made them."""
        version = (await self._rows("PRAGMA user_version"))[0][0]
        if version > VERSION:
            raise LedgerError(
                f"{self._path} has version {version}, this Angarium knows {VERSION}: upgrade this one"
            )
        if version < VERSION:
            async with self._transaction():
                steps = [UPGRADES[each] for each in range(version, VERSION)] if version else [TABLES]
                for statement in ";".join(steps).split(";"):
                    if statement.strip():
                        await self._db.execute(statement)
        self._last_id = (await self._rows("SELECT coalesce(max(id), 0) FROM receivers"))[0][0]
        rows = await self._rows("SELECT block, facts FROM blocks ORDER BY block DESC LIMIT 1")
        self._block, self._block_facts = rows[0] if rows else (1, 0)

    async def close(self) -> None:
        await self._db.close()

    # ---- what the writer asks

    async def read_position(self, stream: str) -> ReadPosition:
        rows = await self._rows("SELECT created, position, stored_at FROM positions WHERE stream = ?", stream)
        if not rows:
            return BEGINNING
        created, position, stored_at = rows[0]
        return ReadPosition(created=created, mark=Mark(position=position, stored_at=stored_at))

    @property
    def shown(self) -> str:
        return str(self._path.absolute())

    @property
    def shares(self) -> int:
        return 1

    async def renew_shares(self, stream: str) -> dict[int, HeldShare]:
        return {0: HeldShare(await self.read_position(stream))}

    async def block_for(self, at: int) -> int:
        return self._block + self._is_full

    @property
    def _is_full(self) -> bool:
        return self._block_facts >= schema.BLOCK_FACTS

    async def receivers(self, names: Mapping[str, int]) -> dict[str, ReceiverRow]:
        found: dict[str, ReceiverRow] = {}
        wanted = list(names)
        for start in range(0, len(wanted), NAMES_PER_QUERY_MAX):
            some = wanted[start : start + NAMES_PER_QUERY_MAX]
            query = _RECEIVERS.format(names=",".join("?" * len(some)))
            read = {row[0]: receiver_of(row) for row in await self._rows(query, *some)}
            ids = [each.id for each in read.values()]
            query = _UNENDED.format(ids=",".join("?" * len(ids)))
            note_unended(read.values(), await self._rows(query, *ids))
            found |= read
        for name, shard in names.items():
            if name in found and shard >= 0:
                found[name].shard = shard
            if name not in found:
                self._last_id += 1
                found[name] = ReceiverRow(self._last_id, name, shard, fresh=True)
        return found

    async def facts_since_base(
        self, receiver: int, up_to: int | None = None
    ) -> tuple[BaseRow | None, list[tuple[int, int, str]]]:
        last = schema.END_OF_TIME if up_to is None else up_to
        base = await _last_base(self._db, receiver, last)
        after = base.position if base else 0
        return base, await self._rows(_FACTS, receiver, after, last)

    # ---- what the writer stores

    async def write(self, stream: str, batch: RowBatch) -> None:
        fresh = [each for each in batch.touched.values() if each.fresh]
        async with self._transaction():
            await self._move(stream, batch.shares[0].read_to, batch.after[0])
            await self._many(
                "INSERT INTO receivers (id, name, shard) VALUES (?,?,?)",
                [(each.id, each.name, each.shard) for each in fresh],
            )
            await self._many(_ATTEMPT, batch.attempts)
            await self._many(_BEGUN, batch.begun.values())
            ended = await self._many(_ENDED, map(_ended_row, batch.ended.values()))
            if ended != len(batch.ended):
                raise LeaseLost(f"{self._path} has dropped old deliveries that are under way after all")
            await self._many("INSERT INTO facts VALUES (?,?,?,?,?)", batch.facts)
            await self._many(_MINUTE, [(*key, *totals) for key, totals in batch.minutes.items()])
            if batch.count:
                span = (batch.first, batch.last, batch.since, batch.until, batch.count)
                await self._db.execute(_BLOCK, (batch.block, *span))
            await self._many("INSERT INTO changes VALUES (?,?,?,?,?,?)", batch.changes)
            await self._many("INSERT INTO paces VALUES (?,?,?,?,?,?,?,?,?)", batch.paces)
            await self._many("INSERT INTO claims VALUES (?,?,?,?,?,?)", batch.claims)
            await self._many("INSERT OR REPLACE INTO states VALUES (?,?,?,?,?)", map(base_row, batch.bases))
            for gap in batch.gaps:
                row = (gap.first, gap.last, gap.since, gap.until, gap.share)
                await self._db.execute("INSERT INTO gaps VALUES (?,?,?,?,?)", row)
                await self._db.execute(_ENDED_UNSEEN, (gap.until,))
            await self._many(_TOUCHED, map(_touched_row, batch.touched.values()))
        if batch.count:
            if batch.block != self._block:
                self._block, self._block_facts = batch.block, 0
            self._block_facts += batch.count
        for each in fresh:
            each.fresh = False

    async def note_end_reached(self, stream: str, shares: Mapping[int, HeldShare], seen_at: int) -> None:
        async with self._transaction():
            await self._move(stream, shares[0].read_to, shares[0].read_to, seen_at)

    async def add_bases(self, bases: Sequence[BaseRow]) -> None:
        async with self._transaction():
            await self._many("INSERT OR REPLACE INTO states VALUES (?,?,?,?,?)", map(base_row, bases))
            await self._many(
                _BASED, [(len(each.state), each.at, each.receiver, each.position) for each in bases]
            )

    async def store_configurations(
        self, stream: str, before: ReadPosition, after: ReadPosition, rows: Sequence[ConfigurationRow]
    ) -> None:
        known = await self.receivers({each.receiver: -1 for each in rows})
        fresh = [each for each in known.values() if each.fresh]
        async with self._transaction():
            await self._many(
                "INSERT INTO receivers (id, name, shard) VALUES (?,?,?)",
                [(each.id, each.name, each.shard) for each in fresh],
            )
            await self._many(
                "INSERT OR IGNORE INTO configurations VALUES (?,?,?,?,?,?)",
                [configuration_row(known[each.receiver].id, each) for each in rows],
            )
            await self._move(stream, before, after)

    async def read_to(self, stream: str) -> int:
        return (await self.read_position(stream)).position

    async def erase(
        self, stream: str, before: ReadPosition, after: ReadPosition, erased: Sequence[tuple[str, str]]
    ) -> str:
        known = False
        async with self._transaction():
            for tenant, event in erased:
                known = await erase_answers(self._db, tenant, event) or known
        if known:
            with ledger_errors(self._path):
                if not await overwrite(self._db):
                    return f"another process reads {self._path}, as it was before"
        # Last, so that it is all done once more after a crash.
        await self.store_configurations(stream, before, after, ())
        return ""

    async def _move(self, stream: str, before: ReadPosition, after: ReadPosition, seen_at: int = 0) -> None:
        stored = await self._db.execute(
            _POSITION,
            (
                stream,
                after.created,
                after.position,
                after.mark.stored_at,
                seen_at,
                before.position,
                before.created,
            ),
        )
        if stored.rowcount != 1:
            raise LedgerError(f"another process writes {self._path}: stop it, and start this one again")

    # ---- dropping old rows

    async def oldest_full_block(self) -> Block | None:
        rows = await self._rows(
            "SELECT b.block, last, until, EXISTS (SELECT 1 FROM deliveries d WHERE d.block = b.block "
            "AND ended_at IS NULL), b.block <= p.block FROM blocks b, pruned p ORDER BY b.block LIMIT 1"
        )
        if not rows or rows[0][0] >= self._block + self._is_full:
            return None
        number, last, until, busy, half_dropped = rows[0]
        return Block(number, last, until, bool(busy), bool(half_dropped))

    async def receivers_without_base(self, block: Block) -> list[tuple[int, str, int]]:
        return [(row[0], row[1], row[2]) for row in await self._rows(_UNBASED, block.number, block.last)]

    async def has_half_dropped(self) -> bool:
        return bool(await self._rows("SELECT 1 FROM blocks b, pruned p WHERE b.block <= p.block LIMIT 1"))

    async def drop_block(self, block: Block) -> AsyncGenerator[None, None]:
        async with self._transaction():
            await self._db.execute(
                "UPDATE pruned SET block = ?, position = ?, at = ?", (block.number, block.last, block.until)
            )
        yield
        for table in ("attempts", "deliveries", "facts"):
            async with self._transaction():
                if table == "deliveries":
                    await self._db.execute(_KEPT_ON, (block.number, block.until - schema.CLOCKS_APART_MS))
                await self._db.execute(f"DELETE FROM {table} WHERE block = ?", (block.number,))
            yield
        async with self._transaction():
            await self._db.execute("DELETE FROM minutes WHERE minute < ?", (block.until // 60_000,))
            for table, newer in _HISTORY.items():
                await self._db.execute(
                    f"DELETE FROM {table} AS old WHERE {newer} AND newer.at < ?1)", (block.until,)
                )
            await self._db.execute("DELETE FROM blocks WHERE block = ?", (block.number,))

    # ---- the connection

    async def _rows(self, query: str, *values: Any) -> list[Any]:
        with ledger_errors(self._path):
            return list(await self._db.execute_fetchall(query, values))

    async def _many(self, statement: str, rows: Iterable[Any]) -> int:
        """Run a statement for each row; returns the number of rows that it changed."""
        rows = list(rows)
        if not rows:
            return 0
        return (await self._db.executemany(statement, rows)).rowcount

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        with ledger_errors(self._path):
            await self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                await self._db.rollback()
                raise
            await self._db.commit()


@asynccontextmanager
async def sqlite_store(path: Path) -> AsyncIterator[SqliteStore]:
    """The tables in this file for its one writer, created if they are missing. Raises LedgerError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise LedgerError(
            f"cannot write a ledger to {path} ({error.strerror}): make it writable, or choose another (--to)"
        ) from error
    with ledger_errors(path):
        db = await aiosqlite.connect(path, isolation_level=None, cached_statements=256)
    try:
        with ledger_errors(path):
            for pragma in ("journal_mode=WAL", "synchronous=NORMAL", f"busy_timeout={BUSY_TIMEOUT_MS}",
                           f"cache_size=-{CACHE_KIB}", f"wal_autocheckpoint={CHECKPOINT_PAGES}"):  # fmt: skip
                await db.execute(f"PRAGMA {pragma}")
        store = SqliteStore(db, path)
        await store.begin()
        yield store
    finally:
        await db.close()


@contextmanager
def ledger_errors(path: Path) -> Iterator[None]:
    """Turn an error of SQLite into a sentence for people."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        remedy = "make room" if "full" in str(error) else "check that it is a ledger, complete and writable"
        raise LedgerError(f"the ledger {path} cannot be used ({error}): {remedy}") from error


async def _last_base(db: aiosqlite.Connection, receiver: int, position: int) -> BaseRow | None:
    """The last base state of a receiver that is no later than a position."""
    rows = list(await db.execute_fetchall(
        "SELECT receiver, position, at, origin, state FROM states WHERE receiver = ? AND position <= ? "
        "ORDER BY position DESC LIMIT 1",
        (receiver, position),
    ))  # fmt: skip
    return BaseRow(*rows[0]) if rows else None


def _ended_row(each: EndedRow) -> tuple[Any, ...]:
    return (
        each.attempts, each.first_at, each.ended_at, each.ending, each.reason, each.block, each.position,
        each.receiver, each.sequence,
    )  # fmt: skip


def _touched_row(each: ReceiverRow) -> tuple[Any, ...]:
    return (
        each.shard, each.failing_since, each.failures, each.disabled, int(each.paused), each.last_at,
        each.last_status, each.last_error, each.facts_since, each.bytes_since, each.base_bytes, each.based_at,
        each.last_position, each.id,
    )  # fmt: skip
