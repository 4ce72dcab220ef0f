"""Answers of the ledger, as values; times are milliseconds since 1970, UTC, or None."""

from typing import Any

from msgspec import Struct

from actors.machine.pace.pace import Pace
from angarium.ledger.schema import DELIVERED, END_OF_TIME


class LedgerProgress(Struct, frozen=True):
    """The progress of a ledger: it has everything recorded up to `as_of`; at `seen_at` there was no more.

    - `gaps`: the periods of the journal that were gone before the ledger read them, as (since, until).
    - `kept_since`: attempts from before are no longer kept; 0 if all are kept.
    """

    as_of: int
    seen_at: int
    gaps: tuple[tuple[int, int], ...]
    kept_since: int = 0


class RecordedAttempt(Struct, frozen=True, kw_only=True):
    """One attempt; `sequence` is 0 for a ping, and for an event that was given up during the attempt.

    `answer` is the beginning of the response body if the attempt failed. `type` is the event's.
    """

    at: int
    sequence: int
    attempt: int
    verdict: int
    status: int | None
    error: str | None
    latency_us: int
    next_at: int | None
    answer: str | None = None
    type: str | None = None
    event: str | None = None

    @property
    def has_failed(self) -> bool:
        return self.verdict != DELIVERED


class DroppedDuplicate(Struct, frozen=True):
    """A message with the id of an earlier event, dropped at a time; `position` is its place in the stream."""

    at: int
    position: int


class RecordedDelivery(Struct, frozen=True, kw_only=True):
    """One event and one of its receivers, with its recorded attempts: the first and the last ones.

    `ended_at` is None until it has ended; `ending` is also None if it ended within a gap. `count` counts its
    attempts, `attempts_total` those that are recorded. `published_at` is earlier than `stored_at` if the
    event had to wait for its fan-out. `repeats` are the messages that were dropped because of it.
    """

    receiver: str
    sequence: int
    event: str
    again: str | None
    published_at: int
    stored_at: int
    ended_at: int | None
    ending: int | None
    reason: str | None
    count: int
    type: str | None
    attempts: tuple[RecordedAttempt, ...]
    attempts_total: int
    repeats: tuple[DroppedDuplicate, ...] = ()


class AttemptFilter(Struct, frozen=True, kw_only=True):
    """Selection of attempts: failed ones, with a status in a range, of one type, begun within a period.

    `error`: failed ones whose error contains the text, in whatever case.
    """

    failed: bool = False
    status: tuple[int, int] | None = None
    error: str | None = None
    type: str | None = None
    since: int = 0
    until: int = END_OF_TIME
    limit: int = 100


class RecordedChange(Struct, frozen=True):
    """Something that happened to a receiver; `kind` is the tag of its fact, or `recovered`."""

    at: int
    kind: str
    detail: dict[str, Any]


class RecordedPace(Struct, frozen=True):
    """A pace that was learnt, as its fact has it, with the limits of that moment.

    `per_second`: 0.0 for a pause, None without a learnt limit. `limited_by`, `in_flight_by`: the members of
    `adaptive` that set them.
    """

    at: int
    pace: Pace
    per_second: float | None
    in_flight: int | None
    limited_by: str
    in_flight_by: str


class Configured(Struct, frozen=True):
    """A configuration without its secrets, or None if it was removed. `changed_by`: who did that.

    `replaced`: the revision before it; 0 if it created the receiver, None if that is not known, and -1 if
    others before it may be missing.
    """

    at: int
    revision: int
    document: str | None
    changed_by: str = ""
    replaced: int | None = None


class ReceiverSummary(Struct, frozen=True):
    """The condition of a receiver after its last fact."""

    receiver: str
    shard: int
    failing_since: int | None
    failures: int
    disabled: str | None
    paused: bool
    last_at: int | None
    last_status: int | None
    last_error: str | None


class LateReceiver(Struct, frozen=True):
    """The attempts at a receiver within a time, and how long its events took from storage to delivery."""

    receiver: str
    attempts: int
    delivered: int
    failed: int
    late_ms: int
    late_ms_max: int


class RecordedMinute(Struct, frozen=True):
    """The attempts to a receiver that began in the minute from `at` on, each of one event, in `posts` POSTs.

    `latency_us` and `late_ms` are sums, over attempts and over delivered events; `…_max` the highest of each.
    """

    at: int
    attempts: int
    delivered: int
    failed: int
    throttled: int
    dead: int
    latency_us: int
    latency_us_max: int
    late_ms: int
    late_ms_max: int
    posts: int


class RecordedTotals(Struct, frozen=True):
    """The attempts that began in the minute from `at` on, and the events given up, of several receivers."""

    at: int
    delivered: int
    failed: int
    throttled: int
    dead: int


class Unknown(Struct, frozen=True):
    """An unknown state: the facts from `since` (0: the beginning) to `until` are missing."""

    since: int
    until: int
