"""The verdict: each promise, checked only by the receivers' records.

It is pure, and strict in one direction: a promise that a record cannot prove counts as broken. The only
allowance is for time. A receiver sees when a request came, not when its attempt took its token: on a busy
machine, some come late and then close together (`busiest_window`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeVar

from msgspec import Struct

from actors.machine.bucket import RateLimit
from angarium.demo.records import Arrival, ReceiverRecord

CLOCKS_DIFFER_MAX_S = 0.001
"""Largest difference between the clocks of node and demo."""
_ROUNDING = 1e-6
REFUSED_PART_MAX = 0.15
"""The largest part of its requests that a receiver with a hidden limit may refuse."""
FOUND_PART_MIN, FOUND_PART_MAX = 0.4, 1.1
"""The learnt rate is within these parts of the limit."""
GAPS_MIN = 20
"""Requests after the first refusal by which the rate is measured."""

K = TypeVar("K")
V = TypeVar("V")


class CheckedPromise(Struct, frozen=True):
    """A promise, the evidence for it in the records, and its breaches."""

    promise: str
    evidence: str
    breaches: tuple[str, ...] = ()

    @property
    def is_kept(self) -> bool:
        return not self.breaches


def check_promises(records: Sequence[ReceiverRecord]) -> list[CheckedPromise]:
    """Every promise over all receivers."""
    return [
        CheckedPromise(promise, evidence(records), tuple(_named(records, breaches)))
        for promise, evidence, breaches in PROMISES
    ]


def _named(
    records: Iterable[ReceiverRecord], breaches: Callable[[ReceiverRecord], Iterator[str]]
) -> Iterator[str]:
    for record in records:
        yield from (f"{record.name}: {breach}" for breach in breaches(record))


# ---- arrived, and in order


def _missing(record: ReceiverRecord) -> Iterator[str]:
    published, accepted = {event.id for event in record.published}, record.accepted
    if lost := len(published - accepted):
        yield f"{lost} of {len(published)} events were never accepted"
    if strange := len({arrival.event_id for arrival in record.arrivals} - published):
        yield f"{strange} events arrived that were never published"


def _events(records: Sequence[ReceiverRecord]) -> str:
    accepted = sum(len(record.accepted) for record in records)
    return f"{accepted} of {sum(len(record.published) for record in records)} events"


def _in_order(records: Sequence[ReceiverRecord]) -> str:
    return f"{sum(record.strict for record in records)} receivers in strict order"


def _misordered(record: ReceiverRecord) -> Iterator[str]:
    """First arrivals come in the order of publishing."""
    if record.strict:
        yield from _misplaced(record, list(_firsts(record)), "came")


def _overtaking(record: ReceiverRecord) -> Iterator[str]:
    """Number n + 1 starts once n was accepted, or given up."""
    settled_to = 0
    for arrival in record.arrivals if record.strict else ():
        if arrival.sequence > settled_to + 1:
            yield f"number {arrival.sequence} came before {arrival.sequence - 1} was accepted"
        if arrival.is_accepted or record.gives_up(arrival):
            settled_to = max(settled_to, arrival.sequence)


def _waiting(record: ReceiverRecord) -> Iterator[str]:
    """Yield breaches of relaxed order: events that waited for an earlier one that failed."""
    if record.is_overtaken and not _overtook(record):
        yield "nothing was accepted while an event failed"


def _passed(records: Sequence[ReceiverRecord]) -> str:
    passed = sum(_overtook(record) for record in records if record.is_overtaken)
    return f"{passed} events passed one that failed"


def _overtook(record: ReceiverRecord) -> int:
    """The most events that were accepted between an event's first failure and its acceptance."""
    failed_at: dict[str, int] = {}
    accepted, most = 0, 0
    for arrival in record.arrivals:
        if arrival.is_accepted:
            most = max(most, accepted - failed_at.get(arrival.event_id, accepted))
            accepted += 1
        else:
            failed_at.setdefault(arrival.event_id, accepted)
    return most


# ---- numbers


def _gaps(record: ReceiverRecord) -> Iterator[str]:
    numbers = {arrival.sequence for arrival in record.arrivals}
    missing = sorted(set(range(1, max(numbers, default=0) + 1)) - numbers)
    if missing:
        yield f"{len(missing)} numbers never came, the first of them {missing[0]}"
    if min(numbers, default=1) < 1:
        yield "there were requests without a number"


def _misnumbered(record: ReceiverRecord) -> Iterator[str]:
    """Numbers are given in the order of publishing, for any order of arrival."""
    yield from _misplaced(record, sorted(_firsts(record), key=lambda each: each.sequence), "was numbered")


def _highest(records: Sequence[ReceiverRecord]) -> str:
    highest = (max((arrival.sequence for arrival in record.arrivals), default=0) for record in records)
    return ", ".join(f"1 to {number}" if number else "none" for number in highest)


def _shared_numbers(record: ReceiverRecord) -> Iterator[str]:
    for number, ids in _several(record, lambda arrival: arrival.sequence, lambda arrival: arrival.event_id):
        yield f"number {number} named {len(ids)} events"


def _changed_numbers(record: ReceiverRecord) -> Iterator[str]:
    for _, numbers in _several(record, lambda arrival: arrival.delivery, lambda arrival: arrival.sequence):
        yield f"one event came as {' and '.join(map(str, sorted(numbers)))}"


def _repeated(records: Sequence[ReceiverRecord]) -> str:
    again = sum(_accepted_before(record) for record in records)
    return f"{sum(record.repeats for record in records)} repeats, {again} of them of accepted events"


def _accepted_before(record: ReceiverRecord) -> int:
    """Requests for events that had been accepted already, repeated after a crash."""
    accepted: set[str] = set()
    count = 0
    for arrival in record.arrivals:
        count += arrival.event_id in accepted
        if arrival.is_accepted:
            accepted.add(arrival.event_id)
    return count


# ---- dead letters


def _unredriven(record: ReceiverRecord) -> Iterator[str]:
    """Checks that each redriven event comes once more, with a new number and its old id."""
    again = {arrival.event_id for arrival in record.arrivals if arrival.again.startswith("dead-")}
    if lost := len(record.given_up - again):
        yield f"{lost} dead letters were never sent again"
    if strange := len(again - record.given_up):
        yield f"{strange} events were sent again that were no dead letters"
    if record.rejected_attempts and not again:
        yield "there was no dead letter to send again"


def _redriven(records: Sequence[ReceiverRecord]) -> str:
    return f"{sum(len(record.given_up) for record in records)} dead letters"


# ---- arrivals


def _changed_content(record: ReceiverRecord) -> Iterator[str]:
    published = {event.id: event.digest for event in record.published}
    for arrival in record.arrivals:
        if arrival.digest != published.get(arrival.event_id, arrival.digest):
            yield f"the body of number {arrival.sequence} differs from the published one"
    for _, signatures in _several(record, lambda arrival: arrival.delivery, lambda each: each.signature):
        yield f"one event carried {len(signatures)} different angarium-signatures"


def _unsigned(record: ReceiverRecord) -> Iterator[str]:
    for arrival in record.arrivals:
        if arrival.problems:
            yield f"number {arrival.sequence}: {'; '.join(arrival.problems)}"


def _requests(records: Sequence[ReceiverRecord]) -> str:
    return f"{sum(len(record.requests) for record in records)} requests"


def _not_batched(record: ReceiverRecord) -> Iterator[str]:
    """The events of a request come in the order of their numbers, and some requests have several."""
    if record.batched and len(record.requests) == len(record.arrivals):
        yield "no request had several events"
    for before, arrival in pairwise(record.arrivals):
        if arrival.place and arrival.sequence != before.sequence + 1:
            yield f"number {arrival.sequence} came in one request after {before.sequence}"


def _batches(records: Sequence[ReceiverRecord]) -> str:
    batched = [record for record in records if record.batched]
    events, requests = (sum(map(len, each)) for each in (
        [record.arrivals for record in batched], [record.requests for record in batched]
    ))  # fmt: skip
    return f"{events} events in {requests} requests"


def _unproved(record: ReceiverRecord) -> Iterator[str]:
    first = record.arrivals[0].at if record.arrivals else None
    if record.must_prove and first is not None and (record.proved_at is None or first < record.proved_at):
        yield "an event came before the proof"


def _proofs(records: Sequence[ReceiverRecord]) -> str:
    proved = sum(record.proved_at is not None for record in records)
    return f"{proved} of {sum(record.must_prove for record in records)} receivers"


# ---- when it came


def _too_many(record: ReceiverRecord) -> Iterator[str]:
    limit = record.limit
    if limit is None:
        return
    count, window_s = busiest_window(record, limit)
    bound = limit.burst + limit.per_second * window_s
    if count > bound + limit.per_second * CLOCKS_DIFFER_MAX_S:
        yield f"{count} attempts in {window_s:.3f} s, {bound:.1f} allowed"


def busiest_window(record: ReceiverRecord, limit: RateLimit) -> tuple[int, float]:
    """The window that comes closest to the limit, or exceeds it most: its attempts, and its seconds.

    In strict order a token is taken after the attempt before has come, and before this one does. So the
    tokens of attempts i to j were taken between the arrivals of i - 1 and of j, even if some were late.
    Of windows that end with j the worst begins with the i for which `rate·at(i - 1) - i` is highest.
    """
    worst, found = float("-inf"), (0, 0.0)
    first, first_at, best_start = 0, 0.0, float("-inf")
    before_at = record.began_at
    for number, arrival in enumerate(record.arrivals):
        spared = limit.per_second * before_at - number
        if spared > best_start:
            first, first_at, best_start = number, before_at, spared
        excess = best_start - (limit.per_second * arrival.at - number)
        if excess > worst:
            worst, found = excess, (number - first + 1, arrival.at - first_at)
        before_at = arrival.at
    return found


def _rates(records: Sequence[ReceiverRecord]) -> str:
    shown = []
    for record in records:
        if record.limit is not None:
            count, window_s = busiest_window(record, record.limit)
            bound = record.limit.burst + record.limit.per_second * window_s
            shown.append(f"{count} attempts in {window_s:.2f} s, {bound:.1f} allowed")
    return "; ".join(shown)


def _impatient(record: ReceiverRecord) -> Iterator[str]:
    """Requests that came before the time that a Retry-After named."""
    wait_until = 0.0
    for arrival in record.arrivals:
        if arrival.at < wait_until - _ROUNDING:
            yield f"number {arrival.sequence} came {wait_until - arrival.at:.3f} s before the time named"
        if arrival.retry_after_s:
            wait_until = arrival.at + arrival.retry_after_s


def _waits(records: Sequence[ReceiverRecord]) -> str:
    pauses = [arrival for record in records for arrival in record.arrivals if arrival.retry_after_s]
    return f"asked to wait {len(pauses)} times"


def _unpaced(record: ReceiverRecord) -> Iterator[str]:
    """Breaches of a hidden limit: it was never found, or was broken again and again, or little was sent."""
    limit = record.hidden_limit
    if not limit:
        return
    refused, found = _refused(record), _found_rate(record)
    if not refused or found is None:
        yield "it was never refused anything, so its limit was not found"
        return
    if refused > REFUSED_PART_MAX * len(record.requests):
        yield f"{refused} of {len(record.requests)} requests were refused"
    if not FOUND_PART_MIN * limit <= found <= FOUND_PART_MAX * limit:
        yield f"{found:.1f} requests came a second, and it takes {limit}"


def _paces(records: Sequence[ReceiverRecord]) -> str:
    return "; ".join(
        f"{found:.1f} a second of {record.hidden_limit}, {_refused(record)} of {len(record.requests)} refused"
        for record in records
        if record.hidden_limit and (found := _found_rate(record)) is not None
    )


def _refused(record: ReceiverRecord) -> int:
    return sum(each.status == 429 for each in record.requests)


def _found_rate(record: ReceiverRecord) -> float | None:
    """The rate after the first refusal, by what most requests had to wait; None if it is not known."""
    requests = record.requests
    first = next((place for place, each in enumerate(requests) if each.status == 429), len(requests))
    gaps = [after.at - before.at for before, after in pairwise(requests[first:])]
    return 1 / median(gaps) if len(gaps) >= GAPS_MIN and median(gaps) > 0 else None


# ---- what the checks share


def _firsts(record: ReceiverRecord) -> Iterator[Arrival]:
    """The first arrival of each event."""
    seen: set[str] = set()
    for arrival in record.arrivals:
        if arrival.event_id not in seen:
            seen.add(arrival.event_id)
            yield arrival


def _misplaced(record: ReceiverRecord, arrivals: Sequence[Arrival], verb: str) -> Iterator[str]:
    """The arrivals that are not in the order of publishing."""
    place = {event.id: number for number, event in enumerate(record.published, 1)}
    highest = 0
    for arrival in arrivals:
        here = place.get(arrival.event_id, 0)
        if here < highest:
            yield f"event {here} {verb} after event {highest}"
        highest = max(highest, here)


def _several(
    record: ReceiverRecord, key: Callable[[Arrival], K], value: Callable[[Arrival], V]
) -> Iterator[tuple[K, set[V]]]:
    """The keys that have more than one value."""
    values: defaultdict[K, set[V]] = defaultdict(set)
    for arrival in record.arrivals:
        values[key(arrival)].add(value(arrival))
    return ((each, found) for each, found in values.items() if len(found) > 1)


PROMISES: tuple[
    tuple[str, Callable[[Sequence[ReceiverRecord]], str], Callable[[ReceiverRecord], Iterator[str]]], ...
] = (
    ("everything arrived", _events, _missing),
    ("in the order of publishing", _in_order, _misordered),
    ("the next only after the one before", _in_order, _overtaking),
    ("in relaxed order no event waits for another", _passed, _waiting),
    ("numbered in the order of publishing", _events, _misnumbered),
    ("numbers without a gap", _highest, _gaps),
    ("a number never names two events", _requests, _shared_numbers),
    ("a repeat keeps its number", _repeated, _changed_numbers),
    ("dead letters sent again, under new numbers", _redriven, _unredriven),
    ("bodies unchanged on every attempt", _requests, _changed_content),
    ("signatures are valid", _requests, _unsigned),
    ("several events in one request, in their order", _batches, _not_batched),
    ("no event before the receiver has proved itself", _proofs, _unproved),
    ("never above burst + rate · t", _rates, _too_many),
    ("Retry-After is obeyed", _waits, _impatient),
    ("a hidden rate limit is found", _paces, _unpaced),
)
"""A promise in words, what the records say for it, and in what one receiver's record breaks it."""
