"""The promises, checked on one receiver's record alone.

A rule takes a record and yields, in words, every place where it is broken. What a record cannot show counts
as broken. Nothing of the product is used to judge the product, so a mistake in it is not made here again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct, field

REPEATS_MAX = 256 + 1
"""Attempts that one crash may repeat in strict order: 256 unrecorded settlements, and what is in flight."""

CLOCKS_S = 0.001
"""By what the sender's clock and the receiver's may differ in what they take for a second."""

K = TypeVar("K")
V = TypeVar("V")


class Arrival(Struct, frozen=True, kw_only=True):
    """One request as its receiver saw it.

    `at` is in seconds by the receiver's own clock, which never jumps. `status` is that of the answer;
    None without one. `in_flight` counts the receiver's other requests that had no answer yet. `by` is the
    node that it came from.
    """

    at: float
    sequence: int
    event_id: str
    attempt: int = 1
    status: int | None = 200
    in_flight: int = 0
    by: str = ""

    @property
    def accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class Record(Struct, kw_only=True):
    """All about one receiver, in order: the ids that JetStream acknowledged, and what came.

    `wide`: how many attempts may be in flight; with more than one its order is relaxed.
    """

    receiver: str
    wide: int = 1
    published: list[str] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True if every event was accepted."""
        if len(self.arrivals) < len(self.published):
            return False  # This is asked again and again.
        return set(self.published) <= {each.event_id for each in self.arrivals if each.accepted}

    @property
    def reached(self) -> int:
        """The number that came last: how far the receiver is, near enough."""
        return self.arrivals[-1].sequence if self.arrivals else 0


def breaches(records: Iterable[Record]) -> list[str]:
    """The breaches of the rules that hold always, despite every crash."""
    return [f"{record.receiver}: {breach}" for record in records for rule in RULES for breach in rule(record)]


# ---- what arrived, and in which order


def lost(record: Record) -> Iterator[str]:
    accepted = {each.event_id for each in record.arrivals if each.accepted}
    missing = [event_id for event_id in record.published if event_id not in accepted]
    if missing:
        yield f"{len(missing)} of {len(record.published)} events were not accepted, first {missing[0]}"


def unheard_of(record: Record) -> Iterator[str]:
    published = set(record.published)
    for each in record.arrivals:
        if each.event_id not in published:
            yield f"{each.event_id} came, which nobody published"


def misordered(record: Record) -> Iterator[str]:
    """First arrivals come in the order of publishing, in strict order."""
    if record.wide > 1:
        return
    place = {event_id: number for number, event_id in enumerate(record.published)}
    highest = -1
    for each in _firsts(record):
        here = place.get(each.event_id, -1)
        if here < highest:
            yield f"{each.event_id} came after {record.published[highest]}"
        highest = max(highest, here)


def early(record: Record) -> Iterator[str]:
    """Number n + 1 comes only after n was accepted, in strict order."""
    if record.wide > 1:
        return
    settled = 0
    for each in record.arrivals:
        if each.sequence > settled + 1:
            yield f"number {each.sequence} came when {settled} was the last that had been accepted"
        if each.accepted:
            settled = max(settled, each.sequence)


def crowded(record: Record) -> Iterator[str]:
    """One attempt at a time, or as many as may be in flight."""
    for each in record.arrivals:
        if each.in_flight >= record.wide:
            came = f"number {each.sequence} came from {each.by or 'a node'} at {each.at:.3f} s"
            yield f"{came} as {each.in_flight} had no answer, of {record.wide} at most"


# ---- numbers


def misnumbered(record: Record) -> Iterator[str]:
    """Numbers are given in the order of publishing, although the events may arrive in another."""
    place = {event_id: number for number, event_id in enumerate(record.published, 1)}
    for each in _firsts(record):
        if each.sequence != (number := place.get(each.event_id, each.sequence)):
            yield f"{each.event_id} came as {each.sequence}, and was published as the {number}th"


def gaps(record: Record) -> Iterator[str]:
    numbers = {each.sequence for each in record.arrivals}
    missing = set(range(1, max(numbers, default=0) + 1)) - numbers
    if missing:
        yield f"{len(missing)} numbers never came, first {min(missing)}"
    if 0 in numbers:
        yield "a request had no number"


def shared_numbers(record: Record) -> Iterator[str]:
    named = _values((each.sequence, each.event_id) for each in record.arrivals)
    yield from (f"number {number} named {_listed(ids)}" for number, ids in named.items() if len(ids) > 1)


def changed_numbers(record: Record) -> Iterator[str]:
    given = _values((each.event_id, each.sequence) for each in record.arrivals)
    yield from (f"{event_id} came as {_listed(of)}" for event_id, of in given.items() if len(of) > 1)


RULES: tuple[Callable[[Record], Iterator[str]], ...] = (
    lost,
    unheard_of,
    misordered,
    early,
    crowded,
    misnumbered,
    gaps,
    shared_numbers,
    changed_numbers,
)


# ---- what a crash repeats


def repeats(record: Record, crashes_at: Sequence[float] = ()) -> list[int]:
    """Counts accepted events that came again: before the first crash, after it, after the second …"""
    accepted: set[str] = set()
    counts = [0] * (len(crashes_at) + 1)
    for each in record.arrivals:
        if each.event_id in accepted:
            counts[sum(each.at >= crash_at for crash_at in crashes_at)] += 1
        if each.accepted:
            accepted.add(each.event_id)
    return counts


def needless_repeats(records: Iterable[Record], crashes_at: Sequence[float] = ()) -> Iterator[str]:
    """Lists events that came again without a crash, or more than a crash may repeat."""
    for record in records:
        before, *after = repeats(record, crashes_at)
        if before:
            yield f"{record.receiver}: {before} accepted events came again, and nothing had crashed"
        for number, count in enumerate(after, 1):
            if count > REPEATS_MAX + record.wide - 1:
                yield f"{record.receiver}: {count} accepted events came again after crash {number}"


# ---- when it came


def unearned(arrived_at: Iterable[float], since: float, per_second: float, burst: int) -> Iterator[str]:
    """Attempts of a strict receiver that came before there was a token for them; nothing was sent `since`.

    When a token was taken is not visible, but it was between the arrivals of the attempt before and of this
    one. So each counts as having had its token as early as possible, and what was late on its way, or noted
    late, is not held against the sender.
    """
    tokens, taken_at = float(burst), since
    for number, at in enumerate(arrived_at, 1):
        tokens = min(float(burst), tokens + per_second * max(0.0, since - taken_at))
        taken_at = max(taken_at, since) + max(0.0, 1.0 - tokens) / per_second
        tokens = max(0.0, tokens - 1.0)
        if taken_at > at + CLOCKS_S:
            yield f"attempt {number} came {taken_at - at:.3f} s before its token"
        since = at


def _firsts(record: Record) -> Iterator[Arrival]:
    """The first arrival of each event."""
    seen: set[str] = set()
    for each in record.arrivals:
        if each.event_id not in seen:
            seen.add(each.event_id)
            yield each


def _values(pairs: Iterable[tuple[K, V]]) -> dict[K, set[V]]:
    values: defaultdict[K, set[V]] = defaultdict(set)
    for key, value in pairs:
        values[key].add(value)
    return values


def _listed(values: Iterable[object]) -> str:
    return " and ".join(sorted(map(str, values)))
