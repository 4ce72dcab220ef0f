"""The rates at which a receiver's events come and go, when its backlog will be gone, and what limits it.

Everything is computed from the nodes' records of the last seconds: no node is asked, or has extra work.
"""

import asyncio
from collections import deque
from typing import Literal

from msgspec import Struct, field

from actors.configuration.policy import Policy
from actors.machine import facts as f
from actors.machine.pace.pace import NO_PACE_LIMITS, PaceLimits
from actors.machine.scheduling.phases import Phase
from streams.bounded_gather import in_turns
from streams.journal_feed.recent_flushes import RECENT_SPAN_S, RecentFlush, RecentFlushes

Bottleneck = Literal["rate", "pace", "latency", "batch", "node", "failure", "throttle", "pause", "unknown"]
"""Limits of a backlog's throughput: the configured rate; the pace that its answers taught; the time that the
receiver takes to answer; a batch that waits for more events, as configured; our nodes; failures; a pause that
the receiver asked for (429), or an operator. Unknown while the backlog is younger than the time that is
measured, or the receiver was resumed within it: it may have been idle before."""

UNMEASURED = None, "unknown"
"""Limits whose receiver was idle for a part of the time that is measured: it can do more than it did."""
BUSY_FROM = 0.7
"""If a receiver is busy with a request for this share of the time, its latency is the limit."""
RATE_USED_FROM = 0.8
WORKING_BELOW_S = 2.0
"""Age of the oldest event below which it counts as being delivered, not as waiting."""


class Counts(Struct):
    """Totals of one receiver over some time: attempts, and the time that they took in all.

    - `failed`: those since the receiver was resumed last, at `resumed_at` (0.0: not in that time).
    - `positions`: those of the settled events.
    - `discarded_to`: the position up to which all events were discarded.
    """

    settled: int = 0
    attempts: int = 0
    failed: int = 0
    busy_ms: float = 0.0
    positions: set[int] = field(default_factory=set)
    discarded_to: int = 0
    resumed_at: float = 0.0

    def add(self, later: "Counts") -> None:
        """Add the counts of a later time."""
        self.settled += later.settled
        self.attempts += later.attempts
        self.failed = later.failed if later.resumed_at else self.failed + later.failed
        self.busy_ms += later.busy_ms
        self.positions |= later.positions
        self.discarded_to = max(self.discarded_to, later.discarded_to)
        self.resumed_at = later.resumed_at or self.resumed_at


class BacklogThroughput(Struct, frozen=True, kw_only=True):
    """The throughput of a receiver. `empty_in_s` is None if there is no end, or it is not known yet.

    `limited_by` is None if nothing is held up.
    """

    in_per_s: float
    out_per_s: float
    empty_in_s: float | None
    limited_by: Bottleneck | None


class RecentCounts:
    """The last seconds of every receiver, or of those of one shard.

    - `last_at`: when the last facts of each receiver were stored.

    Several tasks may share it. What was read less than `kept_for_s` ago is not read again.
    """

    def __init__(self, flushes: RecentFlushes, kept_for_s: float = 0.0) -> None:
        self._flushes = flushes
        self._kept_for_s = kept_for_s
        self._kept_until = 0.0
        self._reading = asyncio.Lock()
        self._seen = deque[tuple[float, dict[str, Counts]]]()
        self.counts: dict[str, Counts] = {}
        self.last_at: dict[str, float] = {}
        self.span_s = RECENT_SPAN_S
        self.since = 0.0

    async def read_on(self) -> None:
        """Read the facts since the last read, and forget those that are too old."""
        async with self._reading:
            loop = asyncio.get_running_loop()
            began_at = loop.time()
            if began_at < self._kept_until:
                return
            try:
                await self._read_on()
            except BaseException:
                # It may have been cancelled, with others waiting for it: nothing of it counts.
                self._flushes.begin_again()
                self._seen.clear()
                raise
            self._kept_until = began_at + self._kept_for_s

    async def _read_on(self) -> None:
        new = await self._flushes.read_new()
        self._seen += [(flush.stored_at, counted(flush)) async for flush in in_turns(new)]
        since = max(self._flushes.since, self._flushes.now - RECENT_SPAN_S)
        while self._seen and self._seen[0][0] < since:
            self._seen.popleft()
        sums, last_at = dict[str, Counts](), dict[str, float]()
        async for stored_at, counts_by_receiver in in_turns(self._seen):
            for receiver, counts in counts_by_receiver.items():
                last_at[receiver] = stored_at
                sums.setdefault(receiver, Counts()).add(counts)
        self.since, self.span_s = since, max(1.0, self._flushes.now - since)
        self.counts, self.last_at = sums, last_at


def counted(flush: RecentFlush) -> dict[str, Counts]:
    """Totals of each receiver in a flush."""
    found: dict[str, Counts] = {}
    for fact in flush.facts:
        if isinstance(fact, f.Claimed) or (isinstance(fact, f.AttemptFailed) and fact.kind == f.NO_ATTEMPT):
            continue
        counts = found.setdefault(fact.receiver, Counts())
        match fact:
            case f.Delivered(events=events) | f.DeadLettered(events=events):
                counts.settled += len(events)
                counts.positions.update(each.position for each in events)
            case (
                f.Forgot(discarded=discarded, position=position)
                | f.Removed(discarded=discarded, position=position)
            ):
                counts.settled += discarded
                counts.discarded_to = max(counts.discarded_to, position)
            case f.AttemptFailed():
                counts.failed += 1
            case f.Resumed() | f.Retargeted():
                counts.failed, counts.resumed_at = 0, flush.stored_at
        if isinstance(fact, f.Delivered | f.AttemptFailed | f.Throttled):
            counts.attempts += 1
            counts.busy_ms += fact.latency_ms
    return found


def throughput(
    counts: Counts,
    span_s: float,
    *,
    arrived: int | None,
    waiting: int,
    oldest_s: float,
    phase: Phase,
    policy: Policy | None,
    learnt: PaceLimits = NO_PACE_LIMITS,
) -> BacklogThroughput:
    """The throughput of a receiver. `arrived`: its events of the span; None if none of it is waiting."""
    out_per_s = counts.settled / span_s
    in_per_s = out_per_s if arrived is None else arrived / span_s
    limited_by = bottleneck_of(
        counts, span_s, waiting=waiting, oldest_s=oldest_s, phase=phase, policy=policy, learnt=learnt
    )
    going_per_s: float | None = out_per_s
    if limited_by in UNMEASURED:
        going_per_s = None
    elif limited_by == "rate" and policy is not None and policy.rate is not None:
        going_per_s = policy.rate.per_second  # A slow rate is known more exactly than it can be measured.
    elif limited_by == "pace":
        going_per_s = _paced_per_s(counts, span_s, policy, learnt)
    return BacklogThroughput(
        in_per_s=round(in_per_s, 3),
        out_per_s=round(out_per_s, 3),
        empty_in_s=empty_in_s(waiting, in_per_s, going_per_s),
        limited_by=limited_by,
    )


def _paced_per_s(counts: Counts, span_s: float, policy: Policy | None, learnt: PaceLimits) -> float | None:
    """Events a second at a learnt pace: its rate if used up; an attempt with a batch has several events."""
    out_per_s, rate = counts.settled / span_s, learnt.per_second
    if rate is None or not _is_used_up(counts, span_s, rate):
        return out_per_s
    batched = policy is not None and policy.batch is not None
    return (out_per_s or rate) if batched else rate


def empty_in_s(waiting: int, in_per_s: float, out_per_s: float | None) -> float | None:
    """Seconds until nothing waits, if all continues as it is; None: never, or not known yet."""
    if not waiting:
        return 0.0
    if out_per_s is None or out_per_s <= in_per_s:
        return None
    return round(waiting / (out_per_s - in_per_s), 1)


def bottleneck_of(
    counts: Counts,
    span_s: float,
    *,
    waiting: int,
    oldest_s: float,
    phase: Phase,
    policy: Policy | None,
    learnt: PaceLimits = NO_PACE_LIMITS,
) -> Bottleneck | None:
    """Name what a backlog waits for; None if it is being delivered."""
    if not waiting:
        return None
    match phase:
        case "paused":
            return "pause"
        case "throttled":
            return "throttle"
        case "disabled" | "offline" | "backing_off" | "misconfigured" | "unverified":
            return "failure"
        case "idle" | "active":
            pass
    if oldest_s < WORKING_BELOW_S:
        return None
    if counts.failed * 2 > counts.attempts:
        return "failure"
    rate = policy.rate if policy is not None else None
    if rate is not None and _is_used_up(counts, span_s, rate.per_second):
        return "rate"
    if learnt.per_second is not None and _is_used_up(counts, span_s, learnt.per_second):
        return "pace"
    at_once = policy.concurrency if policy is not None and policy.order == "relaxed" else 1
    if _is_busy(counts, span_s, at_once):
        return "latency"
    if learnt.in_flight is not None and _is_busy(counts, span_s, learnt.in_flight):
        return "pace"
    if policy is not None and _lingers(policy, waiting, oldest_s):
        return "batch"
    was_idle = oldest_s < span_s or counts.resumed_at
    return "unknown" if was_idle else "node"


def _is_used_up(counts: Counts, span_s: float, per_second: float) -> bool:
    """True if a rate is used up; one attempt of a slow rate may be just outside the span."""
    return counts.attempts + 1 >= RATE_USED_FROM * per_second * span_s


def _is_busy(counts: Counts, span_s: float, at_once: int) -> bool:
    return counts.busy_ms >= BUSY_FROM * 1000 * span_s * at_once


def _lingers(policy: Policy, waiting: int, oldest_s: float) -> bool:
    """True if the events that wait are to wait for more of them, as the receiver's batches are configured."""
    batch = policy.batch
    if batch is None or not batch.linger_s:
        return False
    return waiting < batch.max_events and oldest_s < batch.linger_s + WORKING_BELOW_S
