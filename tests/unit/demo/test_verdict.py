"""The verdict finds each broken promise in a record, and nothing in a record that keeps all."""

import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.machine.bucket import RateLimit
from angarium.demo.records import Arrival, PublishedEvent, ReceiverRecord
from angarium.demo.verdict import PROMISES, busiest_window, check_promises

EVENTS = 6
LIMIT = RateLimit(per_second=10.0, burst=2)
SPACING_S = 0.1


def arrival(number: int, at: float | None = None, **members: object) -> Arrival:
    """The arrival of the `number`th event as it ought to be."""
    usual = Arrival(
        at=number * SPACING_S if at is None else at,
        event_id=f"id-{number}",
        sequence=number,
        attempt=1,
        digest=hashlib.sha256(b"%d" % number).digest(),
        signature=f"v1,{number}",
    )
    return replace(usual, **members)


def good_record() -> ReceiverRecord:
    """Everything at its time, and a retry and a repeat after a crash among it."""
    record = ReceiverRecord(
        name="billing",
        limit=LIMIT,
        began_at=SPACING_S,
        published=[
            PublishedEvent(f"id-{n}", hashlib.sha256(b"%d" % n).digest()) for n in range(1, EVENTS + 1)
        ],
    )
    record.arrivals = [arrival(n) for n in range(1, EVENTS + 1)]
    record.arrivals[2:2] = [arrival(3, at=0.25, status=429, retry_after_s=0.05)]
    record.arrivals += [arrival(EVENTS, at=0.8, attempt=2)]
    return record


def broken(record: ReceiverRecord) -> set[str]:
    return {finding.promise for finding in check_promises([good_record(), record]) if not finding.is_kept}


def test_a_record_that_keeps_every_promise_is_said_to() -> None:
    assert broken(good_record()) == set()


def test_a_record_with_batches_and_a_proof_keeps_every_promise() -> None:
    record = good_record()
    record.batched = record.must_prove = True
    record.proved_at = SPACING_S - 0.01
    record.arrivals += [arrival(5, at=0.9), arrival(6, at=0.9, place=1)]
    assert broken(record) == set()


def test_a_relaxed_record_in_which_events_pass_one_that_fails_keeps_every_promise() -> None:
    record = good_record()
    record.strict = False
    failed, late = arrival(3, status=503), arrival(3, at=0.55, attempt=2)
    record.arrivals = [arrival(1), arrival(2), failed, arrival(4), arrival(5), late, arrival(6)]
    assert broken(record) == set()


def hidden_record(refused: int = 2, spacing_s: float = 0.05) -> ReceiverRecord:
    """Forty requests to a receiver that takes 20 a second; the first ones of the second half are refused."""
    ids = [f"id-{number}" for number in range(1, 41)]
    record = ReceiverRecord(
        name="hidden", strict=False, hidden_limit=20,
        published=[PublishedEvent(each, hashlib.sha256(each[3:].encode()).digest()) for each in ids],
    )  # fmt: skip
    for number in range(1, 41):
        status = 429 if 10 <= number < 10 + refused else 200
        record.arrivals.append(arrival(number, at=number * spacing_s, status=status))
    record.arrivals += [
        arrival(number, at=(31 + number) * spacing_s, attempt=2) for number in range(10, 10 + refused)
    ]
    return record


def test_a_hidden_limit_that_is_found_breaks_no_promise_and_the_evidence_says_it() -> None:
    record = hidden_record()
    assert broken(record) == set()
    (found,) = (each for each in check_promises([record]) if each.promise == "a hidden rate limit is found")
    assert found.evidence == "20.0 a second of 20, 2 of 42 refused"


@pytest.mark.parametrize(
    ("record", "breach"),
    [
        (hidden_record(refused=0), "it was never refused anything, so its limit was not found"),
        (hidden_record(refused=8), "8 of 48 requests were refused"),
        (hidden_record(spacing_s=0.04), "25.0 requests came a second, and it takes 20"),
        (hidden_record(spacing_s=0.2), "5.0 requests came a second, and it takes 20"),
    ],
    ids=["not found", "refused", "too fast", "too slow"],
)
def test_a_hidden_limit_that_is_not_found_is_said(record: ReceiverRecord, breach: str) -> None:
    (found,) = (each for each in check_promises([record]) if each.promise == "a hidden rate limit is found")
    assert found.breaches == (f"hidden: {breach}",)


def with_dead_letter(record: ReceiverRecord, **again: object) -> None:
    """The last event is refused twice, and comes again as `again` says."""
    record.rejected_attempts = 2
    refused = [arrival(EVENTS, at=0.6 + n / 10, attempt=n, status=422) for n in (1, 2)]
    usual = arrival(EVENTS, at=1.2, sequence=EVENTS + 1, again="dead-1", signature="v1,again")
    record.arrivals[-2:] = [*refused, replace(usual, **again)]


def test_a_dead_letter_that_is_sent_again_breaks_no_promise() -> None:
    record = good_record()
    with_dead_letter(record)
    assert broken(record) == set()


def lose_one(record: ReceiverRecord) -> None:
    record.arrivals = [each for each in record.arrivals if each.sequence != EVENTS]


def always_refuse_one(record: ReceiverRecord) -> None:
    record.arrivals[-2:] = [arrival(EVENTS, status=503)]


def invent_one(record: ReceiverRecord) -> None:
    record.arrivals.append(arrival(EVENTS + 1))


def swap_two(record: ReceiverRecord) -> None:
    """The second and the third event change places, and their numbers with them."""
    second, third = record.arrivals[1], record.arrivals[3]
    record.arrivals[1:4] = [replace(third, sequence=2, at=0.2), replace(second, sequence=3, at=0.3)]


def start_too_early(record: ReceiverRecord) -> None:
    """The fourth comes while the third has been refused only."""
    record.arrivals[3], record.arrivals[4] = arrival(4, at=0.3), arrival(3, at=0.4)


def wait_in_relaxed_order(record: ReceiverRecord) -> None:
    record.strict = False


def number_by_arrival(record: ReceiverRecord) -> None:
    """The second came as the third, in relaxed order, and was numbered so."""
    record.strict = False
    swap_two(record)


def forget_a_dead_letter(record: ReceiverRecord) -> None:
    with_dead_letter(record, again="")


def leave_a_gap(record: ReceiverRecord) -> None:
    record.arrivals[-2:] = [arrival(EVENTS, sequence=EVENTS + 1)]


def leave_out_the_number(record: ReceiverRecord) -> None:
    record.arrivals.append(arrival(EVENTS, sequence=0))


def use_a_number_twice(record: ReceiverRecord) -> None:
    record.arrivals[-2:] = [arrival(EVENTS, sequence=EVENTS - 1)]


def renumber_a_repeat(record: ReceiverRecord) -> None:
    record.arrivals[-1] = replace(record.arrivals[-1], sequence=EVENTS + 1)


def change_a_body(record: ReceiverRecord) -> None:
    record.arrivals[0] = replace(record.arrivals[0], digest=b"something else")


def sign_a_repeat_again(record: ReceiverRecord) -> None:
    record.arrivals[-1] = replace(record.arrivals[-1], signature="v1,another")


def sign_wrongly(record: ReceiverRecord) -> None:
    record.arrivals[0] = replace(record.arrivals[0], problems=("webhook-signature is wrong",))


def send_each_alone(record: ReceiverRecord) -> None:
    record.batched = True


def disorder_a_batch(record: ReceiverRecord) -> None:
    record.arrivals += [arrival(2), arrival(1, place=1)]


def prove_too_late(record: ReceiverRecord) -> None:
    record.must_prove, record.proved_at = True, SPACING_S + 0.01


def never_prove(record: ReceiverRecord) -> None:
    record.must_prove = True


def hurry(record: ReceiverRecord) -> None:
    """The whole burst again at once, as a bucket filled up by a restart would grant."""
    record.arrivals += [arrival(EVENTS, at=0.81 + n / 1000) for n in range(4)]


def never_refuse(record: ReceiverRecord) -> None:
    record.hidden_limit = 20


def come_before_the_time_named(record: ReceiverRecord) -> None:
    record.arrivals[2] = replace(record.arrivals[2], retry_after_s=0.06)


BREACHES: list[tuple[Callable[[ReceiverRecord], None], str]] = [
    (lose_one, "everything arrived"),
    (always_refuse_one, "everything arrived"),
    (invent_one, "everything arrived"),
    (swap_two, "in the order of publishing"),
    (start_too_early, "the next only after the one before"),
    (wait_in_relaxed_order, "in relaxed order no event waits for another"),
    (number_by_arrival, "numbered in the order of publishing"),
    (forget_a_dead_letter, "dead letters sent again, under new numbers"),
    (leave_a_gap, "numbers without a gap"),
    (leave_out_the_number, "numbers without a gap"),
    (use_a_number_twice, "a number never names two events"),
    (renumber_a_repeat, "a repeat keeps its number"),
    (change_a_body, "bodies unchanged on every attempt"),
    (sign_a_repeat_again, "bodies unchanged on every attempt"),
    (sign_wrongly, "signatures are valid"),
    (send_each_alone, "several events in one request, in their order"),
    (disorder_a_batch, "several events in one request, in their order"),
    (prove_too_late, "no event before the receiver has proved itself"),
    (never_prove, "no event before the receiver has proved itself"),
    (hurry, "never above burst + rate · t"),
    (come_before_the_time_named, "Retry-After is obeyed"),
    (never_refuse, "a hidden rate limit is found"),
]


@pytest.mark.parametrize(("spoil", "promise"), BREACHES, ids=lambda each: getattr(each, "__name__", None))
def test_a_broken_promise_is_found(spoil: Callable[[ReceiverRecord], None], promise: str) -> None:
    record = good_record()
    spoil(record)
    assert promise in broken(record)


def test_every_promise_has_its_breach() -> None:
    assert {promise for _, promise in BREACHES} == {promise for promise, _, _ in PROMISES}


def test_a_breach_names_the_receiver_and_what_happened() -> None:
    record = good_record()
    lose_one(record)
    finding = next(finding for finding in check_promises([record]) if finding.promise == "everything arrived")
    assert finding.breaches == ("billing: 1 of 6 events were never accepted",)
    assert finding.evidence == "5 of 6 events"


@pytest.mark.parametrize(
    ("came_at", "kept"),
    [
        ([1.0, 1.0], True),
        ([1.0, 1.0, 1.0], False),
        ([1.0, 1.4, 1.4, 1.4], True),
        ([1.0, 1.4, 1.4, 1.4, 1.4], False),
    ],
    ids=["a burst", "one too many", "one was long on its way", "and one too many"],
)
def test_an_attempt_has_its_token_before_it_comes_and_after_the_one_before_did(
    came_at: list[float], kept: bool
) -> None:
    arrivals = [arrival(number, at=at) for number, at in enumerate(came_at, 1)]
    record = ReceiverRecord(name="limited", limit=LIMIT, arrivals=arrivals, began_at=1.0)
    assert ("never above burst + rate · t" not in broken(record)) is kept


@given(st.lists(st.floats(0, 10), min_size=1, max_size=12).map(sorted))
def test_the_busiest_window_is_the_one_that_comes_closest_to_the_limit(times: list[float]) -> None:
    record = ReceiverRecord(name="limited", arrivals=[arrival(1, at=at) for at in times])
    count, window_s = busiest_window(record, LIMIT)
    starts = [record.began_at, *times]
    excesses = [
        last - first + 1 - LIMIT.per_second * (times[last] - starts[first])
        for first in range(len(times))
        for last in range(first, len(times))
    ]
    assert count - LIMIT.per_second * window_s == pytest.approx(max(excesses))


@given(
    st.lists(st.floats(0, 0.5), min_size=1, max_size=12),
    st.lists(st.floats(0, 0.5), min_size=12, max_size=12),
)
def test_attempts_within_the_limit_are_right_even_if_they_arrive_late(
    pauses: list[float], on_their_way: list[float]
) -> None:
    """Each token is taken when it is available, some time after the previous attempt has arrived."""
    tokens, at, arrivals = float(LIMIT.burst), 0.0, []
    for number, (pause_s, way_s) in enumerate(zip(pauses, on_their_way, strict=False), 1):
        wait_s = max(pause_s, (1 - tokens) / LIMIT.per_second)
        tokens = min(LIMIT.burst, tokens + LIMIT.per_second * wait_s) - 1
        arrivals.append(arrival(number, at=at + wait_s + way_s))
        tokens = min(LIMIT.burst, tokens + LIMIT.per_second * way_s)
        at += wait_s + way_s
    record = ReceiverRecord(name="limited", limit=LIMIT, arrivals=arrivals)
    assert "never above burst + rate · t" not in broken(record)
