"""The measurement of a receiver: when an observation is due, and what it says."""

import pytest

from actors.machine.outcome import Answered, Failed
from actors.machine.pace.pace import Observation
from actors.machine.pace.quota_headers import Quota
from actors.memory.pace_measurement import ANSWERS_MIN, SPAN_MAX_S, PaceMeasurement

TIMEOUT = Failed(error="timeout", detail="", latency_ms=2000)
OUTAGE = Failed(error="outage", detail="", latency_ms=10)


def answer(status: int = 200, latency_ms: float = 10.0, **headers: str) -> Answered:
    return Answered(status=status, latency_ms=latency_ms, headers=tuple(headers.items()))


def span(
    measured: PaceMeasurement,
    start: float,
    end: float,
    count: int,
    latency_ms: float = 10.0,
    status: int = 200,
) -> Observation:
    """The observation after so many attempts that start in equal steps and are answered at the end."""
    for number in range(count):
        measured.start(start + number * (end - start) / count, number + 1)
    due = [measured.end(answer(status, latency_ms), end) for _ in range(count)]
    assert due[-1]
    return measured.observe(end, 0.0)


def test_an_observation_is_due_after_a_second_and_enough_answers() -> None:
    measured = PaceMeasurement()
    measured.start(0.0, 1)
    assert not any(measured.end(answer(), 0.9) for _ in range(ANSWERS_MIN))
    assert measured.end(answer(), 1.0)


def test_an_attempt_that_this_node_failed_says_nothing_about_the_receiver() -> None:
    measured = PaceMeasurement()
    measured.start(0.0, 1)
    assert not any(measured.end(OUTAGE, 5.0) for _ in range(ANSWERS_MIN))
    assert measured.end(answer(), SPAN_MAX_S)
    observed = measured.observe(SPAN_MAX_S, 0.0)
    assert (observed.answers, observed.accepted_per_s) == (1, 0.1)


def test_few_answers_take_ten_seconds() -> None:
    measured = PaceMeasurement()
    measured.start(0.0, 1)
    assert not measured.end(answer(), SPAN_MAX_S - 0.1)
    assert measured.end(answer(), SPAN_MAX_S)


def test_a_refusal_is_observed_at_once_but_no_more_than_once_a_second() -> None:
    measured = PaceMeasurement()
    measured.start(0.0, 1)
    assert measured.end(answer(429), 0.1)
    measured.observe(0.1, 0.0)
    measured.start(0.2, 1)
    assert not measured.end(answer(429), 0.3)
    assert measured.end(answer(503), 1.1)


@pytest.mark.parametrize(
    ("outcome", "throttled", "overloaded"),
    [(answer(429), 1, 0), (answer(503), 0, 1), (TIMEOUT, 0, 1), (answer(500), 0, 0), (answer(400), 0, 0)],
    ids=["429", "503", "timeout", "500", "400"],
)
def test_429_503_and_timeouts_are_refusals_and_other_failures_are_not(
    outcome: Answered | Failed, throttled: int, overloaded: int
) -> None:
    measured = PaceMeasurement()
    measured.start(10.0, 1)
    measured.end(outcome, 12.0)
    observed = measured.observe(12.0, 0.0)
    assert (observed.throttled, observed.overloaded) == (throttled, overloaded)
    assert (observed.accepted_per_s > 0) is not bool(throttled or overloaded)
    assert observed.latency_ms is None
    if observed.refused:
        assert observed.refused_began_at == 12.0 - outcome.latency_ms / 1000


def test_one_bad_second_counts_for_nothing() -> None:
    """The higher rates and the lower latency of two spans count."""
    measured = PaceMeasurement()
    span(measured, 0.0, 1.0, count=40)
    bad = span(measured, 1.0, 3.0, count=20, latency_ms=900)
    assert (bad.started_per_s, bad.accepted_per_s, bad.latency_ms) == (40, 40, 10)
    worse = span(measured, 3.0, 5.0, count=20, latency_ms=900)
    assert (worse.started_per_s, worse.accepted_per_s, worse.latency_ms) == (10, 10, 900)


def test_a_span_that_a_refusal_cut_short_says_nothing_about_rates() -> None:
    measured = PaceMeasurement()
    span(measured, 0.0, 1.0, count=40)
    measured.start(1.1, 1)
    measured.end(answer(429), 1.2)
    observed = measured.observe(1.2, 0.0)
    assert (observed.started_per_s, observed.accepted_per_s) == (40, 40)


def test_an_idle_time_after_a_refusal_does_not_lower_the_rates() -> None:
    measured = PaceMeasurement()
    measured.start(0.0, 1)
    measured.end(answer(429), 0.1)
    measured.observe(0.1, 60.0)
    assert span(measured, 60.0, 61.0, count=40).started_per_s == 40


def test_a_limit_that_held_attempts_back_and_their_number_are_observed() -> None:
    measured = PaceMeasurement()
    measured.reach_limit()
    held = span(measured, 0.0, 1.0, count=20)
    assert (held.limit_was_reached, held.in_flight_max) == (True, 20)
    assert not span(measured, 1.0, 2.0, count=20).limit_was_reached


def test_quotas_are_observed_once_a_second_and_at_once_if_nothing_is_left() -> None:
    measured = PaceMeasurement()
    some, none = answer(ratelimit='"a";r=5;t=30'), answer(ratelimit='"a";r=0;t=30')
    assert measured.quotas_to_observe(some, 0.0) == (Quota(5, 30),)
    assert measured.quotas_to_observe(some, 0.9) == ()
    assert measured.quotas_to_observe(none, 0.9) == (Quota(0, 30),)
    assert measured.quotas_to_observe(some, 2.0) == (Quota(5, 30),)
    assert measured.quotas_to_observe(answer(), 9.0) == measured.quotas_to_observe(TIMEOUT, 9.0) == ()
