"""Counters of a node's work so far: plain numbers that the metrics read now and then.

Counting adds almost nothing to the hot path: an addition, or a search in a short tuple. Nothing here is kept
per receiver, so the counters take the same memory for ten receivers as for a million.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from actors.machine.event import Event
from actors.machine.facts import (
    AttemptFailed,
    DeadLettered,
    Delivered,
    EventRefused,
    Fact,
    HandshakeFailed,
    HandshakeSucceeded,
    PaceSet,
    Throttled,
    TurnedAway,
)
from actors.machine.outcome import Answered, Failed, NotSent, Outcome
from actors.machine.pace.pace import PACE_RULES

ATTEMPT_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ARRIVAL_BOUNDS_S = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3600.0, 86400.0,
)  # fmt: skip
THROTTLE_BOUNDS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


class Histogram:
    """Counts of values per bound: those at or below it and above the one before; the last counts the rest."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value; a negative one, which clocks that disagree can produce, counts as zero."""
        if value < 0.0:
            value = 0.0
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class DeliveryTotals:
    """Totals of what the actors of a node have done, in all shards that it has ever owned.

    - `attempts`: POSTs by the class of the status, `2xx` to `5xx`, or by the stage that failed.
    - `deliveries`: events by the meaning of the outcome. Pings do not count.
    - `handshakes`: by whether the receiver proved itself.
    - `dead_letters`: by their reason.
    - `attempt_s`: seconds from a request to its outcome.
    - `arrival_s`: seconds from the storage of an event to the 2xx for it.
    - `throttle_s`: seconds for which receivers asked to get nothing more.
    - `answered_429`: attempts with that answer.
    - `paces`: facts about learnt paces, by what limited the receiver then.

    Deliveries and dead letters are counted when they are decided; the journal holds them a moment later.
    """

    __slots__ = (
        "answered_429", "arrival_s", "attempt_s", "attempts", "dead_letters", "deliveries", "handshakes",
        "paces", "throttle_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.attempts: defaultdict[str, int] = defaultdict(int)
        self.deliveries = dict.fromkeys(("delivered", "failed", "rejected", "throttled", "gone"), 0)
        self.handshakes = dict.fromkeys(("succeeded", "failed"), 0)
        self.dead_letters: defaultdict[str, int] = defaultdict(int)
        self.attempt_s = Histogram(ATTEMPT_BOUNDS_S)
        self.arrival_s = Histogram(ARRIVAL_BOUNDS_S)
        self.throttle_s = Histogram(THROTTLE_BOUNDS_S)
        self.answered_429 = 0
        self.paces = dict.fromkeys((*PACE_RULES, "none"), 0)

    def attempt_ended(self, outcome: Outcome, events: Sequence[Event], now: float) -> None:
        """Count an attempt with these events that is over now."""
        match outcome:
            case Answered(status=status):
                self.attempts[_CLASSES[status // 100 % 10]] += 1
                self.attempt_s.add(outcome.latency_ms / 1000)
                if 200 <= status < 300:
                    for event in events:
                        self.arrival_s.add(now - (event.published_at or event.stored_at))
                elif status == 429:
                    self.answered_429 += 1
            case Failed(error=error):
                self.attempts[error] += 1
                self.attempt_s.add(outcome.latency_ms / 1000)
            case NotSent():
                self.attempts["not_sent"] += 1

    def decided(self, fact: Fact) -> None:
        """Count a fact before it is stored in the journal."""
        match fact:
            case Delivered(kind="event", events=events):
                self.deliveries["delivered"] += len(events)
            case AttemptFailed(kind="event", events=events):
                meaning = "gone" if fact.gone else "rejected" if fact.rejected else "failed"
                self.deliveries[meaning] += len(events)
            case Throttled(kind="event", events=events):
                self.deliveries["throttled"] += len(events)
                self.throttle_s.add(fact.until - fact.at)
            case DeadLettered(reason=reason, events=events):
                self.dead_letters[reason] += len(events)
            case PaceSet():
                self.paces[fact.limited_by or fact.in_flight_by or "none"] += 1
            case HandshakeSucceeded():
                self.handshakes["succeeded"] += 1
            case HandshakeFailed():
                self.handshakes["failed"] += 1
            case EventRefused(reason=reason):
                self.dead_letters[reason] += 1
            case TurnedAway(events=turned_away, discarded=discarded):
                for each in turned_away:
                    self.dead_letters["discarded" if discarded else each.reason] += 1


_CLASSES = tuple(f"{hundreds}xx" for hundreds in range(10))
