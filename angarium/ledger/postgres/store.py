"""Writes the ledger's tables in PostgreSQL, one transaction a batch, as one of any number of processes.

`synchronous_commit=off`: if the database server loses power, the last transactions may be lost, together with
the positions that they moved; the same facts are then read from the journal again.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from operator import itemgetter
from typing import Any

from angarium.ledger import schema
from angarium.ledger.address import Database
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
from angarium.ledger.postgres import partitions, statements
from angarium.ledger.postgres.leases import Leases, application
from angarium.ledger.postgres.overwrite_answers import erase_answers, is_seen, overwrite, transaction_id
from angarium.ledger.postgres.session import BOUNDED, Session, opened
from angarium.ledger.postgres.tables import (
    PARTS_OF_KEEP,
    PERIOD_MIN_MS,
    SHARE_COUNT,
    TABLES,
    UPGRADE,
    VERSION,
    period_of,
)
from angarium.ledger.store import Block, LeaseLost, LedgerAway, LedgerError
from streams.lost_tails.marks import Mark
from streams.lost_tails.read_positions import BEGINNING, ReadPosition

WRITER_SETTINGS = {"synchronous_commit": "off", "plan_cache_mode": "force_generic_plan", **BOUNDED}

_KEY = itemgetter(0, 1, 2, 3, 4)
_TEXT_OF_ATTEMPT = (11, 13, 14)
_TEXT_OF_DELIVERY = (4, 5, 10, 12)


class PostgresStore:
    """Implements `angarium.ledger.store.Store`. Made by `postgres_store`.

    `aside`: a second connection for slow work, which must not delay batches.
    """

    def __init__(self, session: Session, aside: Session, holder: str, shown: str) -> None:
        self._session = session
        self._aside = aside
        self._leases = Leases(session, holder)
        self._shown = shown
        self._period_ms = 0
        self._block = 0
        self._block_facts = 0
        self._erased_by = ""

    async def begin(self, keep_s: float) -> None:
        """Create the tables if there are none. Raises LedgerError if a newer Angarium made them."""
        session = self._session
        async with session.transaction():
            await session.rows("SELECT pg_advisory_xact_lock(hashtext('angarium ledger'))")
            if not await has_tables(session):
                for statement in TABLES.split(";"):
                    await session.execute(statement)
                period_ms = max(PERIOD_MIN_MS, round(keep_s * 1000 / PARTS_OF_KEEP))
                await session.execute("INSERT INTO ledger VALUES (?, ?)", VERSION, period_ms)
        ((version, self._period_ms),) = await session.rows("SELECT version, period_ms FROM ledger")
        if version > VERSION:
            raise LedgerError(
                f"{self._shown} has version {version}, this Angarium knows {VERSION}: upgrade this one"
            )
        if version < VERSION:
            async with session.transaction():
                await session.execute(UPGRADE)
                await session.execute("UPDATE ledger SET version = ?", VERSION)

    async def close(self) -> None:
        """Release the shares at once; if the database is away, they become free a little later."""
        with suppress(LedgerAway):
            await self._leases.end()

    # ---- what the writer asks

    @property
    def shown(self) -> str:
        return self._shown

    @property
    def shares(self) -> int:
        return SHARE_COUNT

    async def renew_shares(self, stream: str) -> dict[int, HeldShare]:
        shares, block = await self._leases.renew(stream)
        if not self._block and block:
            await self._go_on_with(block)
        return shares

    async def _go_on_with(self, block: int) -> None:
        """Fill up a block that another process, or this one in an earlier life, has begun."""
        rows = await self._session.rows(statements.FILLED, block)
        if rows:
            self._block, self._block_facts = block, rows[0][0]

    async def read_position(self, stream: str) -> ReadPosition:
        rows = await self._session.rows(statements.POSITION, stream)
        if not rows:
            return BEGINNING
        created, position, stored_at = rows[0]
        return ReadPosition(created=created, mark=Mark(position=position, stored_at=stored_at))

    async def block_for(self, at: int) -> int:
        period = at // self._period_ms
        full = self._block_facts >= schema.BLOCK_FACTS
        if full or not self._block or period > period_of(self._block):
            self._block = await partitions.next_block(self._session, period)
            self._block_facts = 0
        return self._block

    async def receivers(self, names: Mapping[str, int]) -> dict[str, ReceiverRow]:
        if not names:
            return {}
        rows = await self._session.rows(statements.RECEIVERS, list(names))
        there = {row[0] for row in rows}
        missing = [each for each in names if each not in there]
        if missing:
            await self._session.each(statements.NEW_RECEIVERS, [(each, names[each]) for each in missing])
            rows += await self._session.rows(statements.RECEIVERS, missing)
        found = {row[0]: receiver_of(row) for row in rows}
        ids = [each.id for each in found.values()]
        note_unended(found.values(), await self._session.rows(statements.UNENDED, ids))
        for name, shard in names.items():
            if shard >= 0:
                found[name].shard = shard
        return found

    async def facts_since_base(
        self, receiver: int, up_to: int | None = None
    ) -> tuple[BaseRow | None, list[tuple[int, int, str]]]:
        last = schema.END_OF_TIME if up_to is None else up_to
        rows = await self._session.rows(statements.BASE, receiver, last)
        base = BaseRow(*rows[0]) if rows else None
        after = base.position if base else 0
        found = await self._session.rows(statements.FACTS, receiver, after, last)
        return base, [(position, at, facts) for position, at, facts in found]

    # ---- what the writer stores

    async def write(self, stream: str, batch: RowBatch) -> None:
        session = self._session
        async with session.transaction():
            await self._move(stream, batch.shares, batch.after)
            await session.copy("attempts", _clean(sorted(batch.attempts, key=_KEY), _TEXT_OF_ATTEMPT))
            await session.copy("deliveries", _clean(batch.begun.values(), _TEXT_OF_DELIVERY))
            ended = await session.each(statements.ENDED, map(_ended_row, batch.ended.values()))
            if ended != len(batch.ended):
                raise LeaseLost(f"{self._shown} has dropped old deliveries that are under way after all")
            await session.copy("facts", batch.facts)
            if batch.minutes:
                period = period_of(batch.block)
                minutes = [(*key, *totals, period, posts) for key, (*totals, posts) in batch.minutes.items()]
                await session.each(statements.MINUTES, minutes)
            if batch.count:
                span = (batch.first, batch.last, batch.since, batch.until, batch.count)
                await session.execute(statements.BLOCK, batch.block, *span)
            await session.copy("changes", batch.changes)
            await session.copy("paces", batch.paces)
            await session.copy("claims", batch.claims)
            await session.each(statements.STATE, map(base_row, batch.bases))
            for gap in batch.gaps:
                row = (gap.first, gap.last, gap.since, gap.until, gap.share)
                await session.execute("INSERT INTO gaps VALUES (?, ?, ?, ?, ?)", *row)
                await session.execute(statements.ENDED_UNSEEN, gap.until, SHARE_COUNT, gap.share)
            await session.each(statements.TOUCHED, map(_touched_row, batch.touched.values()))
        self._block_facts += batch.count

    async def note_end_reached(self, stream: str, shares: Mapping[int, HeldShare], seen_at: int) -> None:
        async with self._session.transaction():
            await self._move(stream, shares, {share: held.read_to for share, held in shares.items()}, seen_at)

    async def add_bases(self, bases: Sequence[BaseRow]) -> None:
        rows = [(len(each.state), each.at, each.receiver, each.position) for each in bases]
        async with self._session.transaction():
            await self._session.each(statements.STATE, [base_row(each) for each in bases])
            await self._session.each(statements.BASED, rows)

    async def store_configurations(
        self, stream: str, before: ReadPosition, after: ReadPosition, rows: Sequence[ConfigurationRow]
    ) -> None:
        known = await self.receivers({each.receiver: -1 for each in rows})
        async with self._session.transaction():
            await self._session.execute(statements.NEW_POSITION, stream)
            moved = (
                stream,
                after.created,
                after.position,
                after.mark.stored_at,
                before.position,
                before.created,
            )
            if not await self._session.execute(statements.POSITION_MOVED, *moved):
                raise self._lost()
            await self._session.each(
                statements.CONFIGURATION,
                [configuration_row(known[each.receiver].id, each) for each in rows],
            )

    async def read_to(self, stream: str) -> int:
        rows = await self._session.rows(statements.REACHED, stream)
        return int(rows[0][0])

    async def erase(
        self, stream: str, before: ReadPosition, after: ReadPosition, erased: Sequence[tuple[str, str]]
    ) -> str:
        periods_of_it = set[int]()
        async with self._session.transaction():
            for tenant, event in erased:
                found = await erase_answers(self._session, tenant, event)
                periods_of_it |= found.periods
                if found.changed or not self._erased_by:
                    self._erased_by = await transaction_id(self._session)
        if periods_of_it:
            if await is_seen(self._aside, self._erased_by):
                return "a transaction that began before still reads the answers (see pg_stat_activity)"
            await overwrite(self._aside, periods_of_it)
        # Last, so that it is all done once more after a crash.
        await self.store_configurations(stream, before, after, ())
        self._erased_by = ""
        return ""

    async def _move(
        self,
        stream: str,
        shares: Mapping[int, HeldShare],
        after: Mapping[int, ReadPosition],
        seen_at: int = 0,
    ) -> None:
        """Move the positions of shares. Raises LeaseLost if one of them is not what this process knows."""
        rows = [
            (
                share, held.epoch, held.read_to.position, held.read_to.created, after[share].created,
                after[share].position, after[share].mark.stored_at,
            )
            for share, held in shares.items()
        ]  # fmt: skip
        columns = map(list, zip(*rows, strict=True))
        moved = await self._session.execute(
            statements.MOVED, *columns, stream, self._leases.holder, seen_at, self._block
        )
        if moved != len(rows):
            raise self._lost()

    def _lost(self) -> LeaseLost:
        return LeaseLost(f"another process writes a share of {self._shown} that this one held")

    # ---- rows that are too old

    async def oldest_full_block(self) -> Block | None:
        half_dropped = await self._half_dropped()
        ((period,),) = await self._session.rows("SELECT min(period) FROM periods")
        if half_dropped is not None:
            period = half_dropped
        elif period is None or period >= period_of(self._block):
            return None
        blocks = partitions.blocks_of(period)
        ((last, until, busy),) = await self._session.rows(statements.PERIOD, *blocks)
        return Block(period, last, until, busy, half_dropped is not None)

    async def receivers_without_base(self, block: Block) -> list[tuple[int, str, int]]:
        blocks = partitions.blocks_of(block.number)
        rows = await self._session.rows(statements.UNBASED, *blocks, block.last, SHARE_COUNT)
        return [(row[0], row[1], row[2]) for row in rows]

    async def has_half_dropped(self) -> bool:
        return await self._half_dropped() is not None

    async def _half_dropped(self) -> int | None:
        """The first period whose blocks are gone and whose partitions are still there."""
        for (period,) in await self._session.rows(statements.PERIODS_PRUNED):
            if not await self._session.rows(statements.BLOCK_OF, *partitions.blocks_of(period)):
                return int(period)
        return None

    async def drop_block(self, block: Block) -> AsyncGenerator[None, None]:
        dropping = asyncio.create_task(self._drop(block))
        try:
            while not dropping.done():
                yield
            dropping.result()
        finally:
            dropping.cancel()

    async def _drop(self, block: Block) -> None:
        """Drop a period on the other connection, which waits for those who still read it."""
        aside = self._aside
        blocks = partitions.blocks_of(block.number)
        async with aside.transaction():
            await aside.execute(statements.PRUNED, block.number, block.last, block.until)
            await aside.execute(statements.KEPT_ON, *blocks, block.until - schema.CLOCKS_APART_MS)
            await aside.execute(statements.BLOCKS_GONE, *blocks)
        await partitions.drop(aside, block.number)
        for statement in statements.HISTORY_GONE:
            await aside.execute(statement, block.until)


@asynccontextmanager
async def postgres_store(database: Database, keep_s: float) -> AsyncIterator[PostgresStore]:
    """The tables in this database for one writer, created if they are missing. Raises LedgerError."""
    holder = f"{socket.gethostname()[:24]} {os.getpid()} {secrets.token_hex(4)}"
    name = application(holder)
    async with (
        opened(database, name, **WRITER_SETTINGS) as session,
        opened(database, name) as aside,
    ):
        store = PostgresStore(session, aside, holder, database.shown)
        await store.begin(keep_s)
        try:
            yield store
        finally:
            await store.close()


async def has_tables(session: Session) -> bool:
    return (await session.rows("SELECT to_regclass('ledger') IS NOT NULL"))[0][0] is True


def _clean(rows: Any, columns: tuple[int, ...]) -> list[Any]:
    """The rows, with a mark for NUL in these columns, which PostgreSQL cannot store in a text."""
    found = list(rows)
    for index, row in enumerate(found):
        for column in columns:
            if (text := row[column]) is not None and "\0" in text:
                found[index] = row = (*row[:column], text.replace("\0", "\ufffd"), *row[column + 1 :])
    return found


def _ended_row(each: EndedRow) -> tuple[Any, ...]:
    return (
        each.block, each.position, each.receiver, each.sequence, each.attempts, each.first_at, each.ended_at,
        each.ending, each.reason,
    )  # fmt: skip


def _touched_row(each: ReceiverRow) -> tuple[Any, ...]:
    error = None if each.last_error is None else each.last_error.replace("\0", "\ufffd")
    return (
        each.id, each.shard, each.failing_since, each.failures, each.disabled, int(each.paused), each.last_at,
        each.last_status, error, each.facts_since, each.bytes_since, each.base_bytes, each.based_at,
        each.last_position,
    )  # fmt: skip
