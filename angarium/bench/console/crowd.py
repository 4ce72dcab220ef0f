"""An installation with very many receivers and recorded attempts, made in minutes.

Configurations, snapshots and checkpoints are written as nodes and commands write them, and the ledger's rows
by its own store, but nothing is delivered. Half of the attempts go to one receiver in a hundred, and the
newest one is a minute old. One event went to many receivers, each of which failed many times.
"""

import asyncio
import random
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import click
import msgspec
from msgspec import Struct

from actors.machine import facts as f
from actors.machine.bucket import Bucket
from actors.machine.facts import Burial
from actors.machine.numbering import Frontier, Numbered
from actors.machine.state import State
from angarium.bench.harness import SECRET, SHARDS, Harness, harness
from angarium.bench.publishing import body, run_all, stored
from angarium.ledger import schema
from angarium.ledger.batch import HeldShare, ReceiverRow, RowBatch
from angarium.ledger.sqlite.store import SqliteStore, sqlite_store
from streams.dead_letters.bury import DeadLetterWriter
from streams.installation.partitions import shard_of_receiver
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, encode_checkpoint
from streams.journal.envelope import encode_fact, encode_flush
from streams.journal.routing_progress import NOTHING_ROUTED
from streams.journal.snapshots import Snapshot
from streams.lost_tails.marks import Mark
from streams.lost_tails.read_positions import ReadPosition
from streams.nats.wire_names import EVENT_ID

TENANT_COUNT = 100
BUSY_ONE_IN = 100
"""One receiver in so many is busy, and gets its part of half of the attempts."""
PARKED_RECEIVERS = 100
"""Receivers for which an event waits."""
LETTER_COUNT = 200
BODY_BYTES = 1000
ATTEMPTS_SPAN_S = 86_400.0
"""Time in which the attempts were made."""
FAILED_PART = 0.03
WIDE_RECEIVERS, WIDE_ATTEMPTS = 250, 10_000
"""Receivers of the event that many got, and the attempts that they took in all."""
WIDE_EVENT = "event-wide"
FACTS_ONE_IN = 10
"""One receiver in so many has its facts in the ledger, too, from which repeats are read."""
FACTS_TEXT = "[]"
BYTES_AN_ATTEMPT = 400
"""Room that an attempt takes in the ledger, with its delivery and its minute, and some to spare."""
JOURNAL_EVERY_S = 0.2
JOURNAL_FACTS = 64
_AHEAD_S = 86_400.0
"""The ledger counts as complete for so long, as if its writer went on."""


class CrowdPlan(Struct, frozen=True, kw_only=True):
    """An installation: how many receivers it has, and how many attempts its ledger."""

    receivers: int = 100_000
    attempts: int = 10_000_000
    shards: int = SHARDS


class Crowd(Struct, frozen=True):
    """A crowded installation, the address of its ledger, and the last event of its first receiver."""

    harness: Harness
    ledger: str
    event: str


def receiver_name(number: int) -> str:
    """The name of a receiver: that with the number 0 is busy, and that with the number 1 is not."""
    return f"bench{number % TENANT_COUNT}.r{number}"


@asynccontextmanager
async def crowded(plan: CrowdPlan, on_step: Callable[[str], None]) -> AsyncIterator[Crowd]:
    """Makes the installation, in which attempts are recorded all the time, and leaves nothing behind.

    Raises click.ClickException if the disk has no room for it.
    """
    async with harness(plan.shards) as on:
        needed, free = plan.attempts * BYTES_AN_ATTEMPT, shutil.disk_usage(on.directory).free
        if free < needed:
            raise click.ClickException(f"{on.directory} has {free:,} bytes free, and {needed:,} are needed")
        filler = _Filler(plan, on)
        on_step(f"configure {plan.receivers:,} receivers")
        await run_all(filler.configure, range(plan.receivers))
        await run_all(filler.remember, range(plan.receivers))
        await filler.park_and_bury()
        on_step(f"record {plan.attempts:,} attempts")
        path = on.directory / "ledger.db"
        async with sqlite_store(path) as store:
            event = await filler.record(store, on_step)
        recording = asyncio.create_task(filler.keep_recording())
        try:
            yield Crowd(on, f"sqlite:///{path}", event)
        finally:
            recording.cancel()
            with suppress(asyncio.CancelledError):
                await recording


class _Filler:
    """Writes what nodes, commands and the ledger's writer would have written."""

    def __init__(self, plan: CrowdPlan, harness: Harness) -> None:
        self._plan = plan
        self._js = harness.js
        self._names = Names()
        self._random = random.Random(1)
        self._began_at = time.time() - ATTEMPTS_SPAN_S

    async def configure(self, number: int) -> None:
        raw = {"url": f"https://receiver{number}.example/hook", "secrets": [SECRET], "rate": {"limit": 50}}
        subject = self._names.receiver(receiver_name(number))
        stored(await self._js.publish(subject, msgspec.json.encode(raw)))

    async def remember(self, number: int) -> None:
        """Store a snapshot: the receiver got events, and for some one waits in the stream."""
        name = receiver_name(number)
        last = f.Delivered(
            receiver=name, events=(), at=self._began_at, attempt=1, status=200, latency_ms=20.0,
            bucket=Bucket(50.0, self._began_at, 1),
        )  # fmt: skip
        is_parked = number < PARKED_RECEIVERS
        state = State(
            receiver=name, opened=True, frontier=Frontier(sequence=9), last=last, parked=is_parked,
            waiting_since=self._began_at if is_parked else None,
        )  # fmt: skip
        subject = self._names.actor_keys.actor(self._shard(name), name)
        stored(await self._js.publish(subject, msgspec.json.encode(Snapshot(as_of=0, state=state))))

    async def park_and_bury(self) -> None:
        """Publish what waits, and dead letters of the first tenant, and note how far the shards have come."""
        letters = DeadLetterWriter(self._js, self._names)
        for number in range(LETTER_COUNT):
            name = receiver_name(number % 10 * TENANT_COUNT)
            position = await self._publish(name, f"letter-{number}")
            await letters.bury(
                name, [Burial(position=position, reason="rejected", sequence=number + 1, attempts=3)]
            )
        end = (await self._js.existing_stream(self._names.deliveries)).last
        for shard in range(self._plan.shards):
            checkpoint = encode_checkpoint(Checkpoint(floor=end))
            stored(await self._js.publish(self._names.actor_keys.checkpoint(shard), checkpoint))
        for number in range(PARKED_RECEIVERS):
            await self._publish(receiver_name(number), f"waiting-{number}")

    async def _publish(self, receiver: str, event: str) -> int:
        subject = self._names.publish_to(receiver)
        return stored(await self._js.publish(subject, body(BODY_BYTES), {EVENT_ID: event}))

    async def record(self, store: SqliteStore, on_step: Callable[[str], None]) -> str:
        """Store the attempts, a block at a time. Returns an event of the first receiver."""
        plan, stream = self._plan, self._names.journal
        created = (await self._js.existing_stream(stream)).created
        place = ReadPosition(created=created, mark=Mark(position=0, stored_at=self._began_at))
        known = [self._row(number) for number in range(plan.receivers)]
        last, done, block = "", 0, 0
        while done < plan.attempts:
            block, count = block + 1, min(schema.BLOCK_FACTS, plan.attempts - done)
            after = ReadPosition(created=created, mark=Mark(position=done + count, stored_at=self._at(done)))
            batch = RowBatch(
                shares={0: HeldShare(place if done else _BEGINNING)}, after={0: after}, block=block
            )
            last = await asyncio.to_thread(self._fill, batch, done, count) or last
            if not done:
                batch.touched = {each.id: each for each in known}
            if done + count == plan.attempts:
                self._add_wide(batch, done + count + 1)
            await store.write(stream, batch)
            place, done = after, done + count
            if not block % 32:
                on_step(f"{done:,} attempts")
        seen_at = round((time.time() + _AHEAD_S) * 1000)
        await store.note_end_reached(stream, {0: HeldShare(place)}, seen_at)
        return last

    def _row(self, number: int) -> ReceiverRow:
        name = receiver_name(number)
        return ReceiverRow(number + 1, name, self._shard(name), fresh=True)

    def _fill(self, batch: RowBatch, done: int, count: int) -> str:
        """Add so many attempts; returns the last event of the first receiver, if it got one."""
        chosen, last = self._random, ""
        busy = max(1, self._plan.receivers // BUSY_ONE_IN)
        for position in range(done + 1, done + count + 1):
            number = chosen.randrange(self._plan.receivers)
            if position % 2:
                number = chosen.randrange(busy) * BUSY_ONE_IN
            receiver, at = number + 1, round(self._at(position) * 1000)
            event = f"event-{position}"
            failed = chosen.random() < FAILED_PART
            _add_attempt(batch, receiver, position, event, at, failed=failed)
            if receiver % FACTS_ONE_IN == 1:
                batch.facts.append((batch.block, receiver, position, at, FACTS_TEXT))
            if receiver == 1:
                last = event
        batch.first, batch.last, batch.count = done + 1, done + count, count
        batch.since, batch.until = round(self._at(done) * 1000), round(self._at(done + count) * 1000)
        return last

    def _add_wide(self, batch: RowBatch, position: int) -> None:
        """Add the event that many receivers of the first tenant got."""
        receivers = min(WIDE_RECEIVERS, self._plan.receivers // TENANT_COUNT)
        attempts = WIDE_ATTEMPTS // receivers
        for number in range(receivers):
            receiver, at = number * TENANT_COUNT + 1, batch.until - attempts
            for attempt in range(1, attempts + 1):
                _add_attempt(
                    batch, receiver, position, WIDE_EVENT, at + attempt, attempt=attempt,
                    failed=attempt < attempts,
                )  # fmt: skip
        batch.last = position

    def _at(self, position: int) -> float:
        return self._began_at + (ATTEMPTS_SPAN_S - 60) * position / self._plan.attempts

    def _shard(self, receiver: str) -> int:
        return shard_of_receiver(receiver, self._plan.shards)

    async def keep_recording(self) -> None:
        """Append to the journal, as nodes do: what the pages read of the last seconds is there."""
        number = 0
        while True:
            shard = number % self._plan.shards
            facts = [self._delivered(number * JOURNAL_FACTS + each) for each in range(JOURNAL_FACTS)]
            data = encode_flush(
                node="bench", epoch=1, flush=number, floor=0, routing=NOTHING_ROUTED, at=time.time(),
                unclean=None, facts=list(map(encode_fact, facts)),
            )  # fmt: skip
            stored(await self._js.publish(self._names.journal_of(shard), data))
            number += 1
            await asyncio.sleep(JOURNAL_EVERY_S)

    def _delivered(self, number: int) -> f.Delivered:
        now = time.time()
        event = Numbered(sequence=10, position=number + 1, id=f"live-{number}", stored_at=now)
        return f.Delivered(
            receiver=receiver_name(number % self._plan.receivers), events=(event,), at=now, attempt=1,
            status=200, latency_ms=20.0, bucket=Bucket(50.0, now, 1),
        )  # fmt: skip


_BEGINNING = ReadPosition(created="", mark=Mark(position=0, stored_at=0.0))


def _add_attempt(
    batch: RowBatch, receiver: int, position: int, event: str, at: int, *, failed: bool, attempt: int = 1
) -> None:
    """Add an attempt, with its delivery and its minute."""
    verdict, status = (schema.FAILED, 503) if failed else (schema.DELIVERED, 200)
    answer = "upstream is restarting, try again" if failed else None
    batch.attempts.append((
        batch.block, receiver, at, position, 0, position, position, attempt, 20_000, verdict, status, None,
        None, "order.created", answer,
    ))  # fmt: skip
    row = batch.begun.setdefault((receiver, position), [
        batch.block, position, receiver, position, event, None, at - 50, at, at + 20, schema.SETTLED, None,
        attempt, "order.created", at - 50,
    ])  # fmt: skip
    row[8], row[11] = at + 20, attempt
    minute = batch.minutes.setdefault((at // 60_000, receiver), [0] * 10)
    for place, more in ((0, 1), (2 if failed else 1, 1), (5, 20_000), (9, 1)):
        minute[place] += more
    minute[6] = 20_000
