"""Follows the journal and stores it in the tables: each fact once or, if facts are gone, a recorded gap.

The place is stored in the same transaction as the facts up to it, so a crash at any point repeats nothing and
loses nothing. A message that cannot be read stops the writer after everything before it is stored: skipping a
fact would lose it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable

import msgspec

from actors.errors import InvalidName, NewerVersion
from actors.ids import split_receiver
from angarium.ledger.batch import BaseRow, ReadFlush, ReceiverRow, RowBatch, milliseconds, names_in
from angarium.ledger.configurations import document_of
from angarium.ledger.fold import as_base, base_due, fold
from angarium.ledger.store import LedgerError, Store
from streams.following.bucket_reader import BucketReader
from streams.following.journal_reader import Gap, JournalReader, Place
from streams.following.known_states import all_snapshots
from streams.installation.topology import Names
from streams.journal.envelope import decode_flush
from streams.nats.answers import StoredMessage
from streams.nats.errors import NotOurs, StreamRemade
from streams.nats.jetstream import JetStream

GATHER_FLUSHES_S = 0.5
"""Time to wait for more after a small read: a transaction for many flushes costs little more."""
FEW_FLUSHES = 64
CONFIGURATIONS_EVERY_S = 1.0
NOTE_NOTHING_NEW_EVERY_S = 5.0
"""Interval of notes that nothing is new, so that an answer can say that the ledger is not behind."""
PRUNE_EVERY_S = 60.0
KNOWN_RECEIVERS_MAX = 200_000
_DONE = object()
BASES_AT_ONCE = 200

log = logging.getLogger(__name__)


class Writer:
    """The one writer of a ledger. `keep_s`: how long rows are kept."""

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
        self._known: dict[str, ReceiverRow] = {}
        self._seen_at = 0.0
        self._configured_at = 0.0
        self._pruned_at = 0.0
        self._dropping: AsyncIterator[None] | None = None

    async def run(self) -> None:
        """Follow until cancelled. Raises LedgerError, NewerVersion and NotOurs, each with the remedy."""
        journal, bucket = JournalReader(self._js, self._names.journal), BucketReader(self._js, self._names)
        try:
            place = await self._store.place(self._names.journal)
            log.info("ledger.follows", extra={"position": place.position})
            while True:
                place, more = await self._step(journal, place)
                await self._read_configurations(bucket)
                await self._prune()
                if not more:
                    await asyncio.sleep(GATHER_FLUSHES_S)
        finally:
            journal.stop()
            bucket.stop()

    async def catch_up(self) -> Place:
        """Read everything that the journal and the configurations have by now; returns the place reached."""
        journal, bucket = JournalReader(self._js, self._names.journal), BucketReader(self._js, self._names)
        try:
            place, at_end = await self._store.place(self._names.journal), False
            while not at_end:
                before = place.position
                place, _ = await self._step(journal, place)
                at_end = place.position == before
            await self._read_configurations(bucket)
            return place
        finally:
            journal.stop()
            bucket.stop()

    async def _step(self, journal: JournalReader, place: Place) -> tuple[Place, bool]:
        """Store the next messages; returns the place after them, and whether there may be many more."""
        try:
            place = await journal.check(place)
            found = await journal.read(place.position)
        except StreamRemade as error:
            raise LedgerError(
                f"{error}; this ledger belongs to the old one: choose another one with --to"
            ) from error
        if journal.doubtful:
            return place, True  # These messages may be another stream's.
        match found:
            case Gap():
                return await self._pass(place, found), True
            case []:
                await self._rest(place)
                return place, False
            case messages:
                return await self._store_rows(place, messages), len(messages) >= FEW_FLUSHES

    # ---- what there is

    async def _store_rows(self, place: Place, messages: list[StoredMessage]) -> Place:
        reads = await self._decoded(messages)
        unknown = {name: shard for name, shard in names_in(reads).items() if name not in self._known}
        if len(self._known) > KNOWN_RECEIVERS_MAX:
            self._known.clear()
            unknown = names_in(reads)
        self._known |= await self._store.receivers(unknown)
        last = messages[len(reads) - 1]
        after = Place(created=place.created, position=last.sequence, stored_at=last.stored_at)
        batch = RowBatch(place, after, self._store.block)
        for read in reads:
            batch.add(read, self._known)
            await asyncio.sleep(0)
        await self._store.write(self._names.journal, batch)
        for receiver in batch.touched.values():
            if base_due(receiver, milliseconds(last.stored_at)):
                await self._add_base(receiver)
        return after

    async def _decoded(self, messages: list[StoredMessage]) -> list[ReadFlush]:
        """The flushes, up to the first that cannot be read. Raises if that is the very first."""
        reads: list[ReadFlush] = []
        for message in messages:
            where = f"message {message.sequence} of {self._names.journal}"
            try:
                flush = decode_flush(message.data, where)
            except (NewerVersion, NotOurs) as error:
                if not reads:
                    raise LedgerError(
                        f"{error}; the ledger has all before it, and continues there once it can be read"
                    ) from error
                return reads
            shard = int(message.subject.rpartition(".")[2])
            reads.append(ReadFlush(message.sequence, message.stored_at, shard, flush))
            await asyncio.sleep(0)
        return reads

    async def _add_base(self, receiver: ReceiverRow) -> None:
        base, rows = await self._store.facts_since_base(receiver.id)
        moment = fold(receiver.name, base, rows, None)
        added = as_base(receiver.id, moment)
        await self._store.add_base(added)
        receiver.facts_since = receiver.bytes_since = 0
        receiver.base_bytes, receiver.based_at = len(added.state), added.at

    # ---- what is gone, and what is idle

    async def _pass(self, place: Place, gap: Gap) -> Place:
        """Record a gap, after the states as of its end: snapshots cover the purged facts."""
        log.warning("ledger.gap", extra={"first": gap.first, "last": gap.last})
        after = Place(created=place.created, position=gap.last, stored_at=0.0)
        names, bases = dict[str, int](), list[tuple[str, BaseRow]]()
        async for known in all_snapshots(self._js, self._names):
            behind = known.as_of > gap.last
            at = known.stored_at if behind else gap.until_at
            text = msgspec.json.encode(known.state).decode()
            position = max(known.as_of, gap.last)
            names[known.state.receiver] = known.shard
            bases.append((known.state.receiver, BaseRow(0, position, milliseconds(at), "snapshot", text)))
            if len(bases) >= BASES_AT_ONCE:
                await self._add_snapshots(place, names, bases)
        await self._add_snapshots(place, names, bases)
        batch = RowBatch(place, after, gaps=[(gap, milliseconds(place.stored_at))])
        await self._store.write(self._names.journal, batch)
        self._known.clear()
        return after

    async def _add_snapshots(
        self, place: Place, shards: dict[str, int], bases: list[tuple[str, BaseRow]]
    ) -> None:
        receivers = await self._store.receivers(shards)
        batch = RowBatch(place, place, touched={each.id: each for each in receivers.values()})
        batch.bases = [msgspec.structs.replace(base, receiver=receivers[name].id) for name, base in bases]
        await self._store.write(self._names.journal, batch)
        shards.clear()
        bases.clear()

    async def _rest(self, place: Place) -> None:
        now = self._wall()
        if abs(now - self._seen_at) >= NOTE_NOTHING_NEW_EVERY_S:
            await self._store.rest(self._names.journal, place, milliseconds(now))
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
                await self._store.configured(stream, place, rows)
            if not puts:
                self._configured_at = now
                return

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
            await self._store.add_base(as_base(receiver, fold(name, base, rows, None)))
        self._dropping = self._store.drop(block)


def _is_name(receiver: str) -> bool:
    try:
        split_receiver(receiver)
    except InvalidName:
        return False
    return True
