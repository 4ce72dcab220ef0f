"""The journal of one shard: collects facts, and stores them with one fenced append at a time.

A flush is sent at most 200 ms after its oldest fact was added, or when its facts name 256 events; the first
one after a silence, within 50 ms; an urgent one, at once. It is limited to a quarter of the server's largest
message. Adding facts never waits: the listener is told when they are confirmed, and `is_stalled` says when
nothing new may start.

Small flushes of all shards keep a common tick of 50 ms. Otherwise a node with a gentle load would wake up for
nearly every event to append it, and again for the answer (docs/decisions/flush-timing.md).

The fence (`streams.journal.fence`) decides whether the shard is still ours. A flush that was overtaken ends
the journal, with one exception: if the subject is empty, because all of it aged out, and `_owner` is still
ours, the flush becomes the first of a new chain. To avoid this, a quiet shard also appends a flush from time
to time.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct, field

from actors.aligned_timers import first_tick_from
from actors.delivery_totals import Histogram
from actors.machine.facts import AttemptFailed, Delivered, EventsNumbered, Fact, Throttled
from actors.machine.state import State
from streams.clock import Timekeeper
from streams.installation.topology import Names
from streams.journal.claim import Claim, still_owns
from streams.journal.envelope import encode_fact, encode_flush, message_id
from streams.journal.fence import Appended, append
from streams.journal.routing_progress import RoutingProgress
from streams.lost_tails.marks import Marks
from streams.nats.jetstream import JetStream
from streams.tasks import cancel_and_wait

GATHER_FACTS_S = 0.2
FLUSH_TICK_S = 0.05
SMALL_FLUSH_EVENTS = 8
"""Number of events from which on a flush gathers more for the whole time."""
FLUSH_AT_EVENTS = 256
"""Number of events at which a flush gathers no more facts; a fact without events counts as one."""
STALLED_AFTER_S = 1.0
FLUSH_ROUTING_AFTER_S = 1.0
"""Time after which `routed` and new marks are flushed without facts: routing produces none in this shard."""
FLUSHES_PER_PAYLOAD = 4
"""A flush takes at most this fraction (1/n) of the server's largest message."""
ENVELOPE_BYTES_MAX = 768
"""Largest number of bytes that a flush needs in addition to its facts."""
PAYLOAD_MIN = FLUSHES_PER_PAYLOAD * (64 << 10)
"""The smallest `max_payload` of a server: the fact of 256 events is up to 132 KB, and is one message."""
FLUSHES_PER_RETENTION = 4
"""Number of times that a quiet shard appends within its journal's retention."""
APPEND_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

log = logging.getLogger(__name__)


class JournalEntry(Struct, frozen=True, gc=False):
    """A fact, its index from 1, and the state after it; implements `actors.ports.Recorded`."""

    index: int
    fact: Fact
    state: State


class JournalListener(Protocol):
    """A listener that learns when facts are confirmed. Its methods must not block or raise."""

    def floor_for_flush(self, index: int) -> int:
        """The floor at this cut, after the facts up to `index`; remembered until the flush is confirmed."""

    def routing(self) -> RoutingProgress:
        """The progress of routing; asked at the cut."""

    def marks(self) -> Marks:
        """The highest messages that were read from the streams; asked at the cut."""

    def flush_confirmed(self, entries: Sequence[JournalEntry], position: int) -> None:
        """The journal holds these facts, at `position`. An empty flush has none."""

    def ownership_lost(self, why: str) -> None:
        """Stop the shard, which is no longer ours, and ack nothing."""


def facts_due_at(count: int, since: float, cut_at: float, *, urgent: bool) -> float:
    """The time at which a flush with `count` events is cut, in seconds of the clock of the other times.

    Its facts wait `since` then; the last flush was cut at `cut_at`. Urgent or many ones are flushed at once.
    The first ones after a silence wait for the next tick, and others for up to `GATHER_FACTS_S`.
    """
    if urgent or count >= FLUSH_AT_EVENTS:
        return since
    if since - cut_at >= GATHER_FACTS_S:
        return first_tick_from(since, FLUSH_TICK_S)
    if count < SMALL_FLUSH_EVENTS:
        return first_tick_from(since + GATHER_FACTS_S - FLUSH_TICK_S, FLUSH_TICK_S)
    return since + GATHER_FACTS_S


def event_count(fact: Fact) -> int:
    """The number of events whose outcome or number the fact records; 1 for any other fact."""
    match fact:
        case (
            Delivered(events=events) | AttemptFailed(events=events) | Throttled(events=events)
            | EventsNumbered(events=events)
        ):  # fmt: skip
            return len(events) or 1
        case _:
            return 1


class JournalTotals(Struct):
    """Totals of the appends, and the seconds from the cut of each flush to its confirmation."""

    flushes: int = 0
    facts: int = 0
    bytes: int = 0
    append_s: Histogram = field(default_factory=lambda: Histogram(APPEND_BOUNDS_S))


class _Flush(Struct, frozen=True, gc=False):
    """A flush that is being stored: its number, its content, and its bytes, which never change."""

    number: int
    entries: list[JournalEntry]
    floor: int
    routing: RoutingProgress
    marks: Marks
    data: bytes
    cut_at: float


class Journal:
    """The journal of a shard under one claim, and under its continuation; implements `actors.ports.Recorder`.

    - `claim`: the one in force.
    - `index`: of the last fact that was added.
    - `confirmed_index`: of the last fact that the journal holds.
    - `position`, `floor`, `routing`, `marks`: of the last confirmed flush; at first, of the claim.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        claim: Claim,
        node: str,
        listener: JournalListener,
        *,
        time: Timekeeper,
        retention_s: float,
        totals: JournalTotals | None = None,
    ) -> None:
        self.claim = claim
        self.index = 0
        self.confirmed_index = 0
        self.position = claim.journal_position
        self.floor = claim.floor
        self.routing = claim.routing
        self.marks = claim.marks
        self.totals = totals or JournalTotals()
        self._js = js
        self._names = names
        self._node = node
        self._listener = listener
        self._time = time
        self._quiet_max_s = retention_s / FLUSHES_PER_RETENTION
        self._waiting: list[JournalEntry] = []
        self._waiting_events = 0
        self._waiting_since = 0.0
        self._storing: _Flush | None = None
        self._flush_number = 0
        self._confirmed_flush = 0
        self._urgent_index = 0
        self._keepalive_due = False
        self._routing_due_at: float | None = None
        self._cut_at = 0.0
        self._ended = False
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._progressed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    # ---- what the actors see

    @property
    def is_stalled(self) -> bool:
        """True if nothing new may start: an append is unconfirmed for over 1 s, or none is made."""
        if self._task is None or self._ended:
            return True
        return self._storing is not None and self._loop.time() - self._storing.cut_at > STALLED_AFTER_S

    def add(self, fact: Fact, state: State, urgent: bool = False) -> int:
        """Take a fact and the state after it; returns its index. An `urgent` one does not wait for others."""
        self.index += 1
        if not self._waiting:
            self._waiting_since = self._loop.time()
        self._waiting.append(JournalEntry(self.index, fact, state))
        before = self._waiting_events
        match fact:
            case Delivered(events=(_,)):  # The most frequent case.
                self._waiting_events += 1
            case _:
                self._waiting_events += event_count(fact)
        if urgent:
            self._urgent_index = self.index
        if urgent or not before or before < FLUSH_AT_EVENTS <= self._waiting_events:
            self._wake.set()
        return self.index

    def flush(self) -> None:
        """Store the facts that were taken without waiting for others."""
        self._urgent_index = self.index
        self._wake.set()

    # ---- start and stop

    def flush_soon(self) -> None:
        """Append something soon, if only an empty flush, so that this shard does not hold up the purge."""
        self._keepalive_due = True
        self._wake.set()

    def routing_moved(self) -> None:
        """Append the progress of routing within a second, if necessary in a flush without facts."""
        if self._routing_due_at is None:
            self._routing_due_at = self._loop.time() + FLUSH_ROUTING_AFTER_S
            if not self._waiting:
                self._wake.set()

    def start(self) -> None:
        """Begin to append. Facts may be added before."""
        self._cut_at = self._loop.time()
        self._task = self._loop.create_task(self._run())

    async def drain(self, timeout_s: float) -> bool:
        """Append the facts that were added so far; returns whether they were confirmed in time.

        The progress of routing is appended, too, even without facts.
        """
        target = self._urgent_index = self.index
        moved = self._routing_due_at is not None
        if moved:
            self._routing_due_at = self._loop.time()
        flush = self._flush_number + moved
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._ended and (self.confirmed_index < target or self._confirmed_flush < flush):
                    await self._progressed.wait()
        except TimeoutError:
            return False
        return self.confirmed_index >= target and self._confirmed_flush >= flush

    async def suspend(self) -> None:
        """Append nothing more under this claim: the lease is over. A flush under way stays undecided."""
        task, self._task = self._task, None
        await cancel_and_wait(task)

    def reclaim(self, claim: Claim) -> bool:
        """Continue under a new claim of this process, after `suspend`.

        The claim names the last flush before it. If it is the flush that was under way, that flush is
        confirmed. If it is the one before, the flush under way was not stored, and cannot be stored any
        more, since the claim took its place: its facts are sent again, before all others. If it is any other
        flush, this returns False, and the shard must be claimed once more and recovered.
        """
        before, pending = claim.predecessor, self._storing
        if before is None or not self.is_before(claim):
            return False
        if pending is not None and before.flush == pending.number:
            self._confirm(pending, before.journal_position)
        elif pending is not None:
            self._waiting_since = pending.cut_at
            self._waiting = [*pending.entries, *self._waiting]
            self._waiting_events += sum(event_count(each.fact) for each in pending.entries)
        self._storing, self._flush_number, self._confirmed_flush = None, 0, 0
        self.claim, self.position = claim, claim.journal_position
        self._urgent_index = self.index
        self.start()
        return True

    def is_before(self, claim: Claim) -> bool:
        """True if no other node owned the shard between this suspended journal and the new claim."""
        before, pending = claim.predecessor, self._storing
        if self._ended or before is None or (before.node, before.epoch) != (self._node, self.claim.epoch):
            return False
        last = self._flush_number - (pending is not None)
        return before.flush == last or (pending is not None and before.flush == pending.number)

    async def stop(self) -> None:
        """Append nothing from now on."""
        self._end()
        await self.suspend()

    def _end(self) -> None:
        self._ended = True
        self._progressed.set()

    # ---- gathering, appending, confirming

    async def _run(self) -> None:
        try:
            while True:
                await self._until_due()
                self._storing = self._cut()
                position = await self._append(self._storing)
                if position is None:
                    return
                self._confirm(self._storing, position)
        except Exception as error:
            log.error("journal.broken", extra={"shard": self.claim.shard}, exc_info=error)
            self._fenced("its journal broke")

    async def _until_due(self) -> None:
        while (wait_s := self._due_at() - self._loop.time()) > 0:
            self._wake.clear()
            timer = self._loop.call_later(wait_s, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    def _due_at(self) -> float:
        """The time at which the next flush is cut."""
        if not self._waiting:
            due_at = self._cut_at + (0.0 if self._keepalive_due else self._quiet_max_s)
            return due_at if self._routing_due_at is None else min(due_at, self._routing_due_at)
        urgent = self._urgent_index >= self._waiting[0].index
        return facts_due_at(self._waiting_events, self._waiting_since, self._cut_at, urgent=urgent)

    def _cut(self) -> _Flush:
        """The next flush, with as many of the waiting facts as fit into one message."""
        room = self._js.wire.max_payload // FLUSHES_PER_PAYLOAD - ENVELOPE_BYTES_MAX
        facts, groups = list[bytes](), False
        for entry in self._waiting:
            fact = encode_fact(entry.fact)
            size = len(fact)
            if facts and size > room:
                break
            room -= size + 1
            facts.append(fact)
            match entry.fact:
                case AttemptFailed() | Throttled():
                    groups = groups or entry.fact.is_grouped
        entries, self._waiting = self._waiting[: len(facts)], self._waiting[len(facts) :]
        self._waiting_events = sum(event_count(each.fact) for each in self._waiting)
        floor = max(self.floor, self._listener.floor_for_flush(self.confirmed_index + len(entries)))
        routing = self._listener.routing().raised_to(self.routing.routed)
        marks = self.marks.raised(self._listener.marks())
        self._flush_number += 1
        self._keepalive_due, self._routing_due_at = False, None
        self._cut_at = self._loop.time()
        data = encode_flush(
            node=self._node,
            epoch=self.claim.epoch,
            flush=self._flush_number,
            floor=floor,
            routing=routing,
            at=self._time.wall(),
            unclean=self.claim.unclean,
            marks=marks,
            facts=facts,
            groups=groups,
        )
        return _Flush(self._flush_number, entries, floor, routing, marks, data, self._cut_at)

    async def _append(self, flush: _Flush) -> int | None:
        """Store the flush; returns its position, or None if the shard is no longer ours."""
        shard, epoch, expected = self.claim.shard, self.claim.epoch, self.position
        while True:
            done = await append(
                self._js,
                self._names.journal,
                self._names.journal_of(shard),
                flush.data,
                expected=expected,
                message_id=message_id(shard, epoch, flush.number),
            )
            if isinstance(done, Appended):
                return done.position
            if done.last is not None:
                self._fenced(f"the journal's message at {done.last.position} is not ours")
                return None
            if not await still_owns(self._js, self._names, self.claim):
                self._fenced("the journal is empty, and another node has claimed it")
                return None
            log.info("journal.restarted", extra={"shard": shard, "expected": expected})
            expected = 0

    def _confirm(self, flush: _Flush, position: int) -> None:
        self._storing = None
        self._confirmed_flush = flush.number
        self.position, self.floor, self.routing = position, flush.floor, flush.routing
        self.marks = flush.marks
        self.confirmed_index += len(flush.entries)
        self.totals.flushes += 1
        self.totals.facts += len(flush.entries)
        self.totals.bytes += len(flush.data)
        self.totals.append_s.add(self._loop.time() - flush.cut_at)
        self._progressed.set()
        self._progressed = asyncio.Event()
        self._listener.flush_confirmed(flush.entries, position)

    def _fenced(self, why: str) -> None:
        self._end()
        self._listener.ownership_lost(why)
