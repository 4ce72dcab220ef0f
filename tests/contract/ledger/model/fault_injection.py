"""Faults for a ledger: crashes, purges, erasures, writers that start and stop."""

from contextlib import AsyncExitStack
from random import Random

from angarium.ledger.store import LedgerAway, Store
from angarium.ledger.writer import RENEW_EVERY_S, Writer
from streams.erasing.erasures import Erasures, finished
from streams.installation.topology import Names
from streams.journal_feed.bucket_reader import BucketReader
from streams.journal_feed.journal_reader import JournalReader
from streams.journal_feed.redacted_flushes import drop_redacted, store_redacted
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from tests.contract.ledger.model.history_generator import RECEIVERS, HistoryGenerator, WrittenFlush
from tests.support.installation import shard
from tests.support.ledgers import InFile, Kept, Killed, snapshot

KEEP_S = 20 * 60.0
DIES_WITHIN = 120


class Process:
    """A writer that does a turn at a time, and dies at some statement."""

    def __init__(
        self, js: JetStream, names: Names, ledger: Kept, history: HistoryGenerator, dies_after: int | None
    ) -> None:
        self._js, self._names, self._ledger, self._history = js, names, ledger, history
        self._dies_after = dies_after
        self._stack = AsyncExitStack()
        self._now = 0.0

    async def start(self) -> None:
        after = self._dies_after
        store: Store = await self._stack.enter_async_context(
            self._ledger.store() if after is None else self._ledger.dying(after)
        )
        self.store = store
        self.writer = Writer(
            self._js,
            self._names,
            store,
            keep_s=KEEP_S,
            wall=lambda: self._history.now,
            clock=lambda: self._now,
        )
        self._journal = JournalReader(self._js, self._names)
        self._bucket = BucketReader(self._js, self._names)

    async def turn(self, renew: bool) -> None:
        if renew:
            self._now += RENEW_EVERY_S
        await self.writer.step(self._journal, self._bucket)

    async def stop(self) -> None:
        async with self._stack:
            self._journal.stop()
            await self.writer.stop()


class FaultInjector:
    """Everything that happens to the ledger of a history; `missed` and `redacted` as in `Expected`."""

    def __init__(
        self,
        chance: Random,
        js: JetStream,
        names: Names,
        ledger: Kept,
        history: HistoryGenerator,
        writers: int,
    ) -> None:
        self.missed: dict[int, set[int]] = {
            each: set() for each in sorted({shard(name) for name in RECEIVERS})
        }
        self.redacted = set[int]()
        self.deaths = 0
        self._chance, self._js, self._names, self._ledger, self._history = chance, js, names, ledger, history
        self._processes: list[Process | None] = [None] * writers
        self._gone = set[int]()
        self._copied = set[int]()

    async def step(self) -> None:
        """One thing of all that may happen."""
        match self._chance.randrange(42):
            case 0:
                await self.purge()
            case 1:
                await self.delete()
            case 40 | 41:
                await self.redact()
            case 2 | 3:
                await self.erase()
            case 4:
                await self._ledger.lapse()  # All writers slept for so long.
            case 5 | 6:
                await self.checkpoint(self._chance.choice(list(self.missed)))
            case number if number < 22:
                await self._history.flush()
            case _:
                await self.write(self._chance.randrange(len(self._processes)))

    async def write(self, which: int) -> None:
        """A turn of a writer, which is started first where none runs."""
        process = self._processes[which]
        try:
            if process is None:
                dies_after = self._chance.choice([None, self._chance.randrange(DIES_WITHIN)])
                process = Process(self._js, self._names, self._ledger, self._history, dies_after)
                await process.start()
                self._processes[which] = process
            await process.turn(renew=self._chance.random() < 0.3)
        except (Killed, LedgerAway) as error:
            self.deaths += isinstance(error, Killed)
            await self.end(which)
            if self._chance.random() < 0.7:
                await self._ledger.lapse()

    async def end(self, which: int) -> None:
        process, self._processes[which] = self._processes[which], None
        if process is not None:
            try:
                await process.stop()
            except Killed:
                return

    async def checkpoint(self, of: int) -> None:
        """Store the states of a shard, as its owner does."""
        last = self._history.last_of(of)
        for name in RECEIVERS:
            if shard(name) == of and last:
                await snapshot(self._js, self._names, last, self._history.state(name))

    async def purge(self) -> None:
        """Drop the oldest messages of the journal, which snapshots cover."""
        if not self._history.flushes:
            return
        for each in self.missed:
            await self.checkpoint(each)
        end = self._chance.randint(1, len(self._history.flushes))
        await self._lose(set(range(1, end)) - self._copied_before(end))
        await self._js.purge(self._names.journal, end)
        await drop_redacted(self._js, self._names, end)

    def _copied_before(self, end: int) -> set[int]:
        """The unbroken run of copies right before a position, which a purge leaves."""
        first = end
        while first - 1 in self._copied - self._gone:
            first -= 1
        return set(range(first, end))

    async def delete(self) -> None:
        """Drop one message by hand, which a snapshot of its shard covers."""
        if (flush := self._some_flush()) is not None:
            await self.checkpoint(flush.shard)
            await self._lose({flush.position})
            await self._js.delete(self._names.journal, flush.position)

    async def redact(self) -> None:
        """Put a copy without answers in place of one message, as an erasure does."""
        if (flush := self._some_flush()) is not None:
            message = await self._js.message(self._names.journal, flush.position)
            assert message is not None
            await store_redacted(self._js, self._names, message)
            self.redacted |= (await self._unread({flush.position}))[flush.shard]
            self._copied.add(flush.position)
            await self._js.delete(self._names.journal, flush.position)

    def _some_flush(self) -> WrittenFlush | None:
        gone = self._gone | self._copied
        there = [each for each in self._history.flushes if each.position not in gone]
        return self._chance.choice(there) if there else None

    async def erase(self) -> None:
        """Record a finished erasure."""
        if (event := await self._history.erase()) is None:
            return
        erasures = Erasures(self._js, self._names)
        await erasures.request("acme", event, "ops@host", self._history.now)
        end = (await stream_info(self._js, self._names.journal)).last
        async for request, revision in erasures.pending():
            await erasures.store_progress(finished(request, self._history.now, end), revision)

    async def _lose(self, positions: set[int]) -> None:
        """Note which shards had not read these positions."""
        for of, unread in (await self._unread(positions - self._gone)).items():
            self.missed[of] |= unread
        self._gone |= positions

    async def _unread(self, positions: set[int]) -> dict[int, set[int]]:
        """By shard, those positions that the ledger has not read."""
        in_file = isinstance(self._ledger, InFile)
        query = f"SELECT {0 if in_file else 'share'}, position FROM positions WHERE stream = ?"
        read_to = dict(await self._ledger.rows(query, self._names.journal))
        return {
            of: {each for each in positions if each > read_to.get(0 if in_file else of, 0)}
            for of in self.missed
        }

    async def stop(self) -> None:
        """End all writers."""
        for which in range(len(self._processes)):
            await self.end(which)
