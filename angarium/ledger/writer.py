"""Follows the journal and stores it in the tables: each fact once or, if facts are gone, a recorded gap.

The place is stored in the same transaction as the facts up to it, so a crash at any point repeats nothing and
loses nothing. A message that cannot be read stops the writer after everything before it is stored: skipping a
fact would lose it.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import msgspec
from msgspec.structs import replace

from actors.errors import InvalidName, NewerVersion
from actors.ids import split_receiver
from angarium.ledger.batch import (
    BaseRow,
    GapRow,
    HeldShare,
    ReadFlush,
    ReceiverRow,
    RowBatch,
    milliseconds,
    names_in,
)
from angarium.ledger.configurations import document_of
from angarium.ledger.fold import as_base, base_due, fold
from angarium.ledger.store import LeaseLost, LedgerError, Store
from streams.erasing.erasures import next_request
from streams.following.bucket_reader import BucketReader
from streams.following.journal_reader import Gap, JournalReader, Place
from streams.following.known_states import all_snapshots
from streams.installation.topology import Names
from streams.journal.envelope import decode_flush
from streams.nats.answers import StoredMessage
from streams.nats.errors import NotOurs, StreamRemade
from streams.nats.jetstream import JetStream
from streams.nats.retry import until_answered

HOLD_EVERY_S = 2.0
"""Interval of asking for the shares; a lease lapses after five times that."""
GATHER_FLUSHES_S = 0.5
"""Time to wait for more after a small read: a transaction for many flushes costs little more."""
FEW_FLUSHES = 64
CONFIGURATIONS_EVERY_S = 1.0
ERASURES_EVERY_S = 1.0
ERASURES = "erasures"
"""The stream of requests to erase, as the ledger's places name it."""
NOTE_NOTHING_NEW_EVERY_S = 5.0
"""Interval of notes that nothing is new, so that an answer can say that the ledger is not behind."""
PRUNE_EVERY_S = 60.0
KNOWN_RECEIVERS_MAX = 200_000
_DONE = object()
BASES_AT_ONCE = 200

log = logging.getLogger(__name__)


class Writer:
    """A writer of a ledger: of all shards, or of those that it holds. `keep_s`: how long rows are kept."""

    def __init__(
        self,
        js: JetStream,
        names: Names,
        store: Store,
        *,
        keep_s: float,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._js = js
        self._names = names
        self._store = store
        self._keep_s = keep_s
        self._wall = wall
        self._holds: dict[int, HeldShare] = {}
        self._epochs: dict[int, int] = {}
        self._held_at = -math.inf
        self._known: dict[str, ReceiverRow] = {}
        self._seen_at = 0.0
        self._configured_at = 0.0
        self._pruned_at = 0.0
        self._erased_at = 0.0
        self._dropping: AsyncIterator[None] | None = None

    async def run(self) -> None:
        """Follow until cancelled. Raises LedgerError, NewerVersion and NotOurs, each with the way out."""
        async with self._reading() as (journal, bucket):
            while True:
                if not await self._turn(journal, bucket):
                    await asyncio.sleep(GATHER_FLUSHES_S)

    async def catch_up(self) -> None:
        """Read all that the journal and the configurations have by now, of the shares that it holds."""
        async with self._reading() as (journal, bucket):
            await self._hold()
            before = None
            while before != self._holds:
                before = dict(self._holds)
                await self._step(journal)
            await self._read_configurations(bucket)
            await self._erase()

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[tuple[JournalReader, BucketReader]]:
        journal, bucket = JournalReader(self._js, self._names.journal), BucketReader(self._js, self._names)
        try:
            yield journal, bucket
        finally:
            journal.stop()
            bucket.stop()

    async def _turn(self, journal: JournalReader, bucket: BucketReader) -> bool:
        """Store what comes next, as far as it is this writer's; tells whether there may be much more."""
        if time.monotonic() - self._held_at >= HOLD_EVERY_S:
            await self._hold()
        try:
            more = await self._step(journal)
            if 0 in self._holds:  # Its holder does what is to be done once.
                await self._read_configurations(bucket)
                await self._erase()
                await self._prune()
        except LeaseLost as lost:
            log.info("ledger.lease_lost", extra={"why": str(lost)})
            self._held_at = -math.inf
            self._known.clear()
            return True
        return more

    async def _hold(self) -> None:
        """Renew the lease. What is known of receivers belongs to the shares as they were held."""
        asked_at = time.monotonic()
        holds = await self._store.hold(self._names.journal)
        if {share: hold.epoch for share, hold in holds.items()} != self._epochs:
            self._epochs = {share: hold.epoch for share, hold in holds.items()}
            position = min((hold.place.position for hold in holds.values()), default=0)
            log.info("ledger.follows", extra={"position": position, **self._told_shares()})
        elif holds == self._holds:
            self._held_at = asked_at
            return
        self._holds, self._held_at = holds, asked_at
        self._known.clear()

    def _told_shares(self) -> dict[str, str]:
        """The shares of this writer for the log, where others may write as well."""
        if self._store.shares == 1:
            return {}
        return {"shares": f"{len(self._epochs)} of {self._store.shares}"}

    async def _step(self, journal: JournalReader) -> bool:
        """Store what comes next of the shares; tells whether there may be much more."""
        if not self._holds:
            return False
        try:
            await self._check(journal)
            before = min(hold.place.position for hold in self._holds.values())
            found = await journal.read(before)
        except StreamRemade as error:
            raise LedgerError(
                f"{error}; this ledger belongs to the old one: choose another one with --to"
            ) from error
        if journal.doubtful:
            return True  # What was read may be another stream's.
        match found:
            case Gap():
                await self._pass(found)
                return True
            case []:
                await self._rest()
                return False
            case messages:
                await self._store_rows(messages)
                return len(messages) >= FEW_FLUSHES

    async def _check(self, journal: JournalReader) -> None:
        """Compare the stream with what was read of it, if it may be another one."""
        farthest = max((hold.place for hold in self._holds.values()), key=lambda place: place.position)
        checked = await journal.check(farthest)
        for share, hold in self._holds.items():
            if hold.place.created not in ("", checked.created):
                raise StreamRemade(
                    f"{self._names.journal} was recreated: this one was created {checked.created}"
                )
            self._holds[share] = replace(hold, place=replace(hold.place, created=checked.created))

    # ---- what there is

    async def _store_rows(self, messages: list[StoredMessage]) -> None:
        reads, last = await self._decoded(messages)
        unknown = {name: shard for name, shard in names_in(reads).items() if name not in self._known}
        if len(self._known) > KNOWN_RECEIVERS_MAX:
            self._known.clear()
            unknown = names_in(reads)
        self._known |= await self._store.receivers(unknown)
        batch = self._moving(last.sequence, last.stored_at)
        if reads:
            batch.block = await self._store.block(milliseconds(reads[0].stored_at))
        for read in reads:
            batch.add(read, self._known)
            await asyncio.sleep(0)
        await self._write(batch)
        for receiver in batch.touched.values():
            if base_due(receiver, milliseconds(last.stored_at)):
                await self._add_base(receiver)

    def _moving(self, position: int, stored_at: float) -> RowBatch:
        """A batch that moves all shares that are not there yet to a position."""
        holds = {share: hold for share, hold in self._holds.items() if hold.place.position < position}
        after = {
            share: Place(created=hold.place.created, position=position, stored_at=stored_at)
            for share, hold in holds.items()
        }
        return RowBatch(holds, after)

    async def _write(self, batch: RowBatch) -> None:
        await self._store.write(self._names.journal, batch)
        for share, hold in batch.holds.items():
            self._holds[share] = replace(hold, place=batch.after[share])

    async def _decoded(self, messages: list[StoredMessage]) -> tuple[list[ReadFlush], StoredMessage]:
        """The flushes of our shares that are not stored yet, up to the first that cannot be read, and the
        last message before that. Raises where that is the first of all."""
        reads: list[ReadFlush] = []
        for index, message in enumerate(messages):
            shard = int(message.subject.rpartition(".")[2])
            hold = self._holds.get(shard % self._store.shares)
            if hold is None or message.sequence <= hold.place.position:
                continue
            where = f"message {message.sequence} of {self._names.journal}"
            try:
                flush = decode_flush(message.data, where)
            except (NewerVersion, NotOurs) as error:
                if not index:
                    raise LedgerError(
                        f"{error}; the ledger has all before it, and continues there once it can be read"
                    ) from error
                return reads, messages[index - 1]
            reads.append(ReadFlush(message.sequence, message.stored_at, shard, flush))
            await asyncio.sleep(0)
        return reads, messages[-1]

    async def _add_base(self, receiver: ReceiverRow) -> None:
        base, rows = await self._store.facts_since_base(receiver.id)
        moment = fold(receiver.name, base, rows, None)
        added = as_base(receiver.id, moment)
        await self._store.add_base(added)
        receiver.facts_since = receiver.bytes_since = 0
        receiver.base_bytes, receiver.based_at = len(added.state), added.at

    # ---- what is gone, and what is idle

    async def _pass(self, gap: Gap) -> None:
        """Put a gap on record, after the states as of its end: snapshots cover what was purged."""
        log.warning("ledger.gap", extra={"first": gap.first, "last": gap.last})
        batch = self._moving(gap.last, 0.0)
        names, bases = dict[str, int](), list[tuple[str, BaseRow]]()
        async for known in all_snapshots(self._js, self._names):
            if known.shard % self._store.shares not in batch.holds:
                continue
            behind = known.as_of > gap.last
            at = known.stored_at if behind else gap.until_at
            text = msgspec.json.encode(known.state).decode()
            position = max(known.as_of, gap.last)
            names[known.state.receiver] = known.shard
            bases.append((known.state.receiver, BaseRow(0, position, milliseconds(at), "snapshot", text)))
            if len(bases) >= BASES_AT_ONCE:
                await self._add_snapshots(batch.holds, names, bases)
        await self._add_snapshots(batch.holds, names, bases)
        batch.gaps = [
            GapRow(
                share, hold.place.position + 1, gap.last, milliseconds(hold.place.stored_at),
                milliseconds(gap.until_at),
            )
            for share, hold in batch.holds.items()
        ]  # fmt: skip
        await self._write(batch)
        self._known.clear()

    async def _add_snapshots(
        self, holds: dict[int, HeldShare], shards: dict[str, int], bases: list[tuple[str, BaseRow]]
    ) -> None:
        receivers = await self._store.receivers(shards)
        places = {share: hold.place for share, hold in holds.items()}
        batch = RowBatch(holds, places, touched={each.id: each for each in receivers.values()})
        batch.bases = [replace(base, receiver=receivers[name].id) for name, base in bases]
        await self._store.write(self._names.journal, batch)
        shards.clear()
        bases.clear()

    async def _rest(self) -> None:
        now = self._wall()
        if abs(now - self._seen_at) >= NOTE_NOTHING_NEW_EVERY_S:
            await self._store.rest(self._names.journal, self._holds, milliseconds(now))
            self._seen_at = now

    async def _read_configurations(self, bucket: BucketReader) -> None:
        now = self._wall()
        if abs(now - self._configured_at) < CONFIGURATIONS_EVERY_S:
            return
        stream = self._names.receivers
        while True:
            before = await self._store.place(stream)
            place, puts = await bucket.read(before)
            rows = [
                (
                    each.receiver, milliseconds(each.stored_at), each.revision,
                    None if each.raw is None else document_of(each.raw),
                )
                for each in puts
                if _is_name(each.receiver)
            ]  # fmt: skip
            if place != before:
                await self._store.configured(stream, before, place, rows)
            if not puts:
                self._configured_at = now
                return

    async def _erase(self) -> None:
        """Erase what was erased everywhere else, once the tables have all that the journal had of it."""
        now = self._wall()
        if abs(now - self._erased_at) < ERASURES_EVERY_S:
            return
        self._erased_at = now
        before, erased = await self._store.place(ERASURES), list[tuple[str, str]]()
        after, reached = before.position, await self._store.reached(self._names.journal)
        while found := await until_answered(partial(next_request, self._js, self._names, after)):
            position, request = found
            if request is not None and request.done_at is not None:
                if request.journal_end > reached:
                    break
                erased.append((request.tenant, request.event))
            after = position
        if erased:
            await self._store.erase(ERASURES, before, Place(position=after), erased)
            log.info("ledger.erased", extra={"events": len(erased)})

    async def _prune(self) -> None:
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
        block = await self._store.oldest()
        if block is None or block.busy or block.until >= milliseconds(now - self._keep_s):
            return
        for receiver, name in await self._store.unbased(block):
            base, rows = await self._store.facts_since_base(receiver, block.last)
            if rows:
                await self._store.add_base(as_base(receiver, fold(name, base, rows, None)))
        self._dropping = self._store.drop(block)


def _is_name(receiver: str) -> bool:
    try:
        split_receiver(receiver)
    except InvalidName:
        return False
    return True
