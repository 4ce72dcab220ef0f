"""Follows the journal and stores it in the tables: each fact once or, if facts are gone, a recorded gap.

The position is stored in the same transaction as the facts up to it, so a crash at any point repeats nothing
and loses nothing. A message that cannot be read stops the writer after everything before it is stored:
skipping a fact would lose it.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.errors import InvalidName, NewerVersion
from actors.ids import split_receiver
from angarium.ledger.batch import (
    BaseRow,
    ConfigurationRow,
    GapRow,
    HeldShare,
    ReadFlush,
    ReceiverRow,
    RowBatch,
    milliseconds,
    names_in,
)
from angarium.ledger.configurations import document_of
from angarium.ledger.fold import as_base, fold, is_base_due
from angarium.ledger.store import LeaseLost, LedgerError, Store
from streams.erasing.erasures import next_request
from streams.installation.topology import Names
from streams.journal.envelope import decode_flush
from streams.journal_feed.all_snapshots import KnownState, all_snapshots
from streams.journal_feed.bucket_reader import BucketReader, compared_position
from streams.journal_feed.journal_reader import Gap, JournalReader
from streams.lost_tails.marks import Mark
from streams.lost_tails.read_positions import BucketPosition, ReadPosition
from streams.nats.answers import StoredMessage
from streams.nats.errors import NotOurs, StreamRecreated
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered

RENEW_EVERY_S = 2.0
"""Interval between renewals of the lease; it lapses after five of them."""
GATHER_FLUSHES_S = 0.5
"""Time to wait for more after a small read: a transaction for many flushes costs little more."""
FEW_FLUSHES = 64
CONFIGURATIONS_EVERY_S = 1.0
ERASURES_EVERY_S = 1.0
ERASURES_SHARE = 10
"""A tenth of the time at most is spent on rewriting a file, since nothing else is stored meanwhile. Events
that wait for it are erased together."""
ERASURES = "erasures"
"""The stream of requests to erase, as the ledger's positions name it."""
NOTE_NOTHING_NEW_EVERY_S = 5.0
"""Interval of notes that nothing is new, by which an answer can say that the ledger is not behind."""
PRUNE_EVERY_S = 60.0
KNOWN_RECEIVERS_MAX = 200_000
_DONE = object()
BASES_AT_ONCE = 200

log = logging.getLogger(__name__)


class LedgerTotals(Struct):
    """Totals of what was stored since the process began.

    - `complete_at`: all that was recorded until then, in the held shards, is stored; None if none is held.
    """

    facts: int = 0
    gaps: int = 0
    shares: int = 0
    complete_at: float | None = None


class Writer:
    """A writer of a ledger: of all shards, or of those that it holds.

    - `keep_s`: how long rows are kept.
    - `totals`: what is counted, also by writers before this one.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        store: Store,
        *,
        keep_s: float,
        totals: LedgerTotals | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._js = js
        self._names = names
        self._store = store
        self._keep_s = keep_s
        self._totals = totals or LedgerTotals()
        self._wall = wall
        self._clock = clock
        self._shares: dict[int, HeldShare] = {}
        self._epochs: dict[int, int] = {}
        self._renewed_at = -math.inf
        self._known: dict[str, ReceiverRow] = {}
        self._seen_at = 0.0
        self._configured_at = 0.0
        self._pruned_at = 0.0
        self._next_erasure_at = -math.inf
        self._erased_to: BucketPosition | None = None
        self._erasure_delayed_by = ""
        self._dropping: AsyncGenerator[None, None] | None = None

    async def run(self) -> None:
        """Follow until cancelled. Raises LedgerError, NewerVersion and NotOurs, each with a remedy."""
        async with self._reading() as (journal, bucket):
            while True:
                if not await self.step(journal, bucket):
                    await asyncio.sleep(GATHER_FLUSHES_S)

    async def catch_up(self) -> None:
        """Read the rest of the journal and the configurations, for the held shares."""
        async with self._reading() as (journal, bucket):
            await self.renew()
            before = None
            while before != self._shares:
                before = dict(self._shares)
                await self.store_next(journal)
            await self._read_configurations(bucket)
            await self._erase()

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[tuple[JournalReader, BucketReader]]:
        journal, bucket = JournalReader(self._js, self._names), BucketReader(self._js, self._names)
        try:
            yield journal, bucket
        finally:
            journal.stop()
            await self.stop()

    async def stop(self) -> None:
        """Interrupt a drop that is under way; the next writer continues it."""
        if self._dropping is not None:
            await self._dropping.aclose()
            self._dropping = None

    @property
    def shares(self) -> set[int]:
        """The shares that it holds."""
        return set(self._shares)

    @property
    def is_dropping(self) -> bool:
        """True while it drops a block."""
        return self._dropping is not None

    async def step(self, journal: JournalReader, bucket: BucketReader) -> bool:
        """Store the next facts of this writer's shares; returns whether there may be much more."""
        if self._clock() - self._renewed_at >= RENEW_EVERY_S:
            await self.renew()
        try:
            more = await self.store_next(journal)
            if 0 in self._shares:  # Work that must be done only once is done by its holder.
                await self._read_configurations(bucket)
                await self.prune()
                await self._erase()
        except LeaseLost as lost:
            log.info("ledger.lease_lost", extra={"why": str(lost)})
            self._renewed_at = -math.inf
            self._known.clear()
            return True
        return more

    async def renew(self) -> None:
        """Renew the lease. If the shares have changed, forget the known receivers."""
        asked_at = self._clock()
        shares = await self._store.renew_shares(self._names.journal)
        if {share: held.epoch for share, held in shares.items()} != self._epochs:
            self._epochs = {share: held.epoch for share, held in shares.items()}
            position = min((held.read_to.position for held in shares.values()), default=0)
            where = {"position": position, "ledger": self._store.shown}
            log.info("ledger.follows", extra=where | self._shares_for_log())
        elif shares == self._shares:
            self._renewed_at = asked_at
            return
        self._shares, self._renewed_at = shares, asked_at
        self._known.clear()

    def _shares_for_log(self) -> dict[str, str]:
        """The shares of this writer for the log, where others may write as well."""
        if self._store.shares == 1:
            return {}
        return {"shares": f"{len(self._epochs)} of {self._store.shares}"}

    async def store_next(self, journal: JournalReader) -> bool:
        """Store the next facts of the shares; returns whether there may be much more."""
        self._totals.shares = len(self._shares)
        if not self._shares:
            self._totals.complete_at = None
            return False
        asked_at = self._wall()
        try:
            await self._check(journal)
            before = min(held.read_to.position for held in self._shares.values())
            found = await journal.read(before)
        except StreamRecreated as error:
            raise LedgerError(
                f"{error}; this ledger belongs to the old one: choose another one with --to"
            ) from error
        if journal.doubtful:
            return True  # The data that was read may come from another stream.
        match found:
            case Gap():
                await self._pass(found)
                return True
            case []:
                await self._rest()
                self._totals.complete_at = asked_at
                return False
            case messages:
                await self._store_rows(messages)
                return len(messages) >= FEW_FLUSHES

    async def _check(self, journal: JournalReader) -> None:
        """Compare the stream with the messages read from it, if it may be another one."""
        farthest = max((held.read_to for held in self._shares.values()), key=lambda read_to: read_to.position)
        checked = await journal.check(farthest)
        for share, held in self._shares.items():
            if held.read_to.created not in ("", checked.created):
                raise StreamRecreated(
                    f"{self._names.journal} was recreated: this one was created {checked.created}"
                )
            self._shares[share] = replace(held, read_to=replace(held.read_to, created=checked.created))

    # ---- reading

    async def _store_rows(self, messages: list[StoredMessage]) -> None:
        reads, last = await self._decoded(messages)
        unknown = {name: shard for name, shard in names_in(reads).items() if name not in self._known}
        if len(self._known) > KNOWN_RECEIVERS_MAX:
            self._known.clear()
            unknown = names_in(reads)
        self._known |= await self._store.receivers(unknown)
        batch = self._moving(Mark(position=last.position, stored_at=last.stored_at))
        if reads:
            batch.block = await self._store.block_for(milliseconds(reads[0].stored_at))
        for read in reads:
            batch.add(read, self._known)
            await asyncio.sleep(0)
        await self._write(batch)
        self._totals.facts += sum(len(read.flush.facts) for read in reads)
        self._totals.complete_at = last.stored_at
        now = milliseconds(last.stored_at)
        due = [receiver for receiver in batch.touched.values() if is_base_due(receiver, now)]
        for start in range(0, len(due), BASES_AT_ONCE):
            await self._add_bases(due[start : start + BASES_AT_ONCE])

    def _moving(self, mark: Mark) -> RowBatch:
        """A batch that moves all shares before a message to it."""
        shares = {
            share: held for share, held in self._shares.items() if held.read_to.position < mark.position
        }
        after = {
            share: ReadPosition(created=held.read_to.created, mark=mark) for share, held in shares.items()
        }
        return RowBatch(shares, after)

    async def _write(self, batch: RowBatch) -> None:
        await self._store.write(self._names.journal, batch)
        for share, held in batch.shares.items():
            self._shares[share] = replace(held, read_to=batch.after[share])

    async def _decoded(self, messages: list[StoredMessage]) -> tuple[list[ReadFlush], StoredMessage]:
        """The flushes of our shares that are not stored yet, up to the first that cannot be read.

        Also returns the last message before that one. Raises if it is the first of all."""
        reads: list[ReadFlush] = []
        for index, message in enumerate(messages):
            shard = self._names.shard_of_flush(message.subject)
            held = self._shares.get(shard % self._store.shares)
            if held is None or message.position <= held.read_to.position:
                continue
            where = f"message {message.position} of {self._names.journal}"
            try:
                flush = decode_flush(message.data, where)
            except (NewerVersion, NotOurs) as error:
                if not index:
                    raise LedgerError(
                        f"{error}; the ledger has all before it, and continues there once it can be read"
                    ) from error
                return reads, messages[index - 1]
            reads.append(ReadFlush(message.position, message.stored_at, shard, flush))
            await asyncio.sleep(0)
        return reads, messages[-1]

    async def _add_bases(self, receivers: Sequence[ReceiverRow]) -> None:
        """Store a base state for each of them, in one transaction: each costs as much as many facts."""
        bases: list[BaseRow] = []
        for receiver in receivers:
            base, rows = await self._store.facts_since_base(receiver.id)
            if rows or base is None:  # A snapshot may be ahead of the facts.
                base = as_base(receiver.id, fold(receiver.name, base, rows, None))
            bases.append(base)
        await self._store.add_bases(bases)
        for receiver, base in zip(receivers, bases, strict=True):
            receiver.facts_since = receiver.bytes_since = 0
            receiver.base_bytes, receiver.based_at = len(base.state), base.at

    # ---- gaps, and idle receivers

    async def _pass(self, gap: Gap) -> None:
        """Record a gap, after the states as of its end: snapshots cover the purged messages."""
        log.warning("ledger.gap", extra={"first": gap.first, "last": gap.last})
        batch = self._moving(Mark(position=gap.last))
        states: list[KnownState] = []
        async for known in all_snapshots(self._js, self._names):
            if known.shard % self._store.shares not in batch.shares:
                continue
            states.append(known)
            if len(states) >= BASES_AT_ONCE:
                await self._add_snapshots(batch.shares, gap, states)
                states.clear()
        await self._add_snapshots(batch.shares, gap, states)
        batch.gaps = [
            GapRow(
                share, held.read_to.position + 1, gap.last, milliseconds(held.read_to.mark.stored_at),
                milliseconds(gap.until_at),
            )
            for share, held in batch.shares.items()
        ]  # fmt: skip
        await self._write(batch)
        self._totals.gaps += 1
        self._known.clear()

    async def _add_snapshots(
        self, shares: dict[int, HeldShare], gap: Gap, states: Sequence[KnownState]
    ) -> None:
        """Store snapshots as base states, except those that are older than what the ledger has.

        Such a receiver has no fact in the gap: snapshots have the purged ones, and what is erased is in those
        of its shard.
        """
        receivers = await self._store.receivers({each.state.receiver: each.shard for each in states})
        bases = []
        for known in states:
            receiver = receivers[known.state.receiver]
            if known.as_of < receiver.last_position:
                del receivers[receiver.name]
                continue
            at = known.stored_at if known.as_of > gap.last else gap.until_at
            text = msgspec.json.encode(known.state).decode()
            position = max(known.as_of, gap.last)
            bases.append(BaseRow(receiver.id, position, milliseconds(at), "snapshot", text))
        after = {share: held.read_to for share, held in shares.items()}
        batch = RowBatch(shares, after, touched={each.id: each for each in receivers.values()}, bases=bases)
        await self._store.write(self._names.journal, batch)

    async def _rest(self) -> None:
        now = self._wall()
        if abs(now - self._seen_at) >= NOTE_NOTHING_NEW_EVERY_S:
            await self._store.note_end_reached(self._names.journal, self._shares, milliseconds(now))
            self._seen_at = now

    async def _read_configurations(self, bucket: BucketReader) -> None:
        now = self._wall()
        if abs(now - self._configured_at) < CONFIGURATIONS_EVERY_S:
            return
        stream = self._names.receivers
        while True:
            before = await self._store.read_position(stream)
            read_to, puts = await bucket.read(before)
            rows = [
                ConfigurationRow(
                    each.receiver, milliseconds(each.stored_at), each.revision,
                    None if each.document is None else document_of(each.document), each.by, each.replaced,
                )
                for each in puts
                if _is_name(each.receiver)
            ]  # fmt: skip
            if read_to != before:
                await self._store.store_configurations(stream, before, read_to, rows)
            if not puts:
                self._configured_at = now
                return

    async def _erase(self) -> None:
        """Erase events that are erased everywhere else, once the tables have all their facts."""
        now = self._clock()
        if now < self._next_erasure_at:
            return
        self._next_erasure_at = now + ERASURES_EVERY_S
        before, erased = await self._store.read_position(ERASURES), list[tuple[str, str]]()
        known = self._erased_to = compared_position(self._js, self._names.actors, before, self._erased_to)
        same = await retry_until_answered(known.compare)
        read_to = known.read_to
        reached = await self._store.read_to(self._names.journal)
        while found := await retry_until_answered(
            partial(next_request, self._js, self._names, read_to.position)
        ):
            mark, request = found
            if request is not None and request.done_at is not None:
                if request.journal_end > reached:
                    break
                erased.append((request.tenant, request.event))
            read_to = ReadPosition(created=read_to.created, mark=mark)
        if known.is_doubtful:
            return  # These requests may be from another bucket.
        if erased or not same:
            began = self._clock()
            if self.is_dropping or await self._store.has_half_dropped():
                why = "rows that are too old are being dropped, and cannot be searched"
            else:
                why = await self._store.erase(ERASURES, before, read_to, erased)
            took = self._clock() - began
            self._next_erasure_at = max(self._next_erasure_at, began + took * ERASURES_SHARE)
            if not why:
                known.move(read_to.mark)
                log.info("ledger.erased", extra={"events": len(erased)})
            elif why != self._erasure_delayed_by:
                log.warning("ledger.erasure_delayed", extra={"events": len(erased), "why": why})
            self._erasure_delayed_by = why

    async def prune(self) -> None:
        """Drop the oldest block if all of it is too old, a step at a time, and look again after a while."""
        if self._dropping is not None:
            if await anext(self._dropping, _DONE) is _DONE:
                self._dropping = None
                self._pruned_at = 0.0  # The next one may be too old as well.
            return
        now = self._wall()
        if abs(now - self._pruned_at) < PRUNE_EVERY_S:
            return
        self._pruned_at = now
        block = await self._store.oldest_full_block()
        if block is None:
            return
        too_old = not block.busy and block.until < milliseconds(now - self._keep_s)
        if not (too_old or block.half_dropped):
            return
        for receiver, name, up_to in await self._store.receivers_without_base(block):
            base, rows = await self._store.facts_since_base(receiver, up_to)
            if rows:
                await self._store.add_bases([as_base(receiver, fold(name, base, rows, None))])
        self._dropping = self._store.drop_block(block)


def _is_name(receiver: str) -> bool:
    try:
        split_receiver(receiver)
    except InvalidName:
        return False
    return True
