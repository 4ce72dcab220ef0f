"""The checks of receivers' records: one that keeps every promise, and for each rule one that breaks it."""

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from tests.support.fleet.records import (
    REPEATS_MAX,
    RULES,
    Arrival,
    Record,
    breaches,
    changed_numbers,
    crowded,
    early,
    gaps,
    lost,
    misnumbered,
    misordered,
    needless_repeats,
    repeats,
    shared_numbers,
    unearned,
    unheard_of,
)


def record(published: str, *arrivals: tuple[int, str] | tuple[int, str, int | None]) -> Record:
    """One letter an event; arrivals are number, event, and what was answered, at 0 s, 1 s, 2 s and so on."""
    return Record(
        receiver="t.r",
        published=list(published),
        arrivals=[
            Arrival(at=at, sequence=number, event_id=event_id, status=status[0] if status else 200)
            for at, (number, event_id, *status) in enumerate(arrivals)
        ],
    )


def wide(
    count: int, published: str, *arrivals: tuple[int, str] | tuple[int, str, int | None], in_flight: int = 0
) -> Record:
    """A record of a relaxed receiver, with a number of unanswered attempts at each arrival."""
    seen = record(published, *arrivals).arrivals
    arrived = [replace(each, in_flight=in_flight) for each in seen]
    return Record(receiver="t.r", wide=count, published=list(published), arrivals=arrived)


@pytest.mark.parametrize(
    "kept",
    [
        record(""),
        record("abc", (1, "a"), (2, "b"), (3, "c")),
        record("ab", (1, "a", 503), (1, "a", None), (1, "a"), (2, "b")),
        record("abc", (1, "a"), (2, "b"), (1, "a"), (2, "b"), (3, "c")),
        wide(2, "abc", (2, "b"), (1, "a", 503), (3, "c"), (1, "a"), in_flight=1),
    ],
    ids=["nothing", "at once", "after failures", "repeated by a crash", "in relaxed order"],
)
def test_a_record_that_keeps_the_promise_passes(kept: Record) -> None:
    assert breaches([kept]) == []
    assert kept.complete


BREACHES = [
    (lost, record("ab", (1, "a"))),
    (lost, record("a", (1, "a", 503))),
    (lost, record("a", (1, "a", None))),
    (unheard_of, record("a", (1, "a"), (2, "x"))),
    (misordered, record("abc", (1, "a"), (2, "c"), (3, "b"))),
    (early, record("ab", (1, "a", 503), (2, "b"), (1, "a"))),
    (early, record("ab", (2, "b"), (1, "a"))),
    (
        crowded,
        Record(
            receiver="t.r", published=["a"], arrivals=[Arrival(at=0, sequence=1, event_id="a", in_flight=1)]
        ),
    ),
    (crowded, wide(2, "abc", (1, "a"), (2, "b"), (3, "c"), in_flight=2)),
    (misnumbered, wide(2, "ab", (1, "b"), (2, "a"))),
    (gaps, record("ab", (1, "a"), (3, "b"))),
    (gaps, record("a", (0, "a"))),
    (shared_numbers, record("ab", (1, "a"), (1, "b"))),
    (changed_numbers, record("ab", (1, "a"), (2, "a"), (3, "b"))),
]


@pytest.mark.parametrize(("rule", "broken"), BREACHES)
def test_a_breach_is_found(rule: Callable[[Record], Iterator[str]], broken: Record) -> None:
    found = list(rule(broken))
    assert found
    assert {f"t.r: {breach}" for breach in found} <= set(breaches([broken]))


def test_every_rule_has_its_breach() -> None:
    assert {rule for rule, _ in BREACHES} == set(RULES)


def test_a_record_with_a_missing_event_is_not_complete() -> None:
    assert not record("ab", (1, "a"), (2, "b", 500)).complete


def test_repeats_belong_to_the_crash_before_them() -> None:
    seen = record("abc", (1, "a"), (1, "a"), (2, "b"), (1, "a"), (2, "b"), (2, "b"), (3, "c"))
    assert repeats(seen) == [4]
    assert repeats(seen, [2.5, 4.5]) == [1, 2, 1]


def test_an_attempt_after_a_failure_is_not_a_repeat() -> None:
    assert repeats(record("a", (1, "a", 503), (1, "a", None), (1, "a"))) == [0]


def test_repeats_need_a_crash_and_are_bounded() -> None:
    many = [(number, f"e{number}") for number in range(1, REPEATS_MAX + 2)]
    again = Record(receiver="t.r", arrivals=record("", *many, *many).arrivals)
    crash_at = float(len(many))
    assert "nothing had crashed" in next(needless_repeats([again]))
    assert f"{REPEATS_MAX + 1} accepted events came again after crash 1" in next(
        needless_repeats([again], [crash_at])
    )
    del again.arrivals[-1]
    assert list(needless_repeats([again], [crash_at])) == []


def test_a_crash_may_repeat_everything_that_a_relaxed_receiver_had_in_flight() -> None:
    many = [(number, f"e{number}") for number in range(1, REPEATS_MAX + 4)]
    again = Record(receiver="t.r", wide=4, arrivals=record("", *many, *many).arrivals)
    assert list(needless_repeats([again], [float(len(many))])) == []


@pytest.mark.parametrize(
    "arrived_at",
    [
        [],
        [0.0] * 5,
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.2, 0.3],
        [0.3, 0.3, 0.3, 0.3, 0.3, 0.3],
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.7],
    ],
    ids=["nothing", "a burst", "a burst, then the rate", "the first came late", "one in the middle did"],
)
def test_attempts_that_may_have_had_their_tokens_are_right(arrived_at: list[float]) -> None:
    assert list(unearned(arrived_at, since=0.0, per_second=10, burst=5)) == []


@pytest.mark.parametrize(
    ("arrived_at", "number", "early_s"),
    [
        ([0.0] * 6, 6, 0.1),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.18], 7, 0.02),
        ([0.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.05], 8, 0.05),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.65], 12, 0.05),
    ],
    ids=["one too many", "faster than the rate", "after a quiet time", "after one that took long"],
)
def test_an_attempt_before_its_token_is_found(arrived_at: list[float], number: int, early_s: float) -> None:
    found = list(unearned(arrived_at, since=0.0, per_second=10, burst=5))
    assert found == [f"attempt {number} came {early_s:.3f} s before its token"]
