"""Counters of attempts and facts, and the histogram bucket of a value."""

import pytest

from actors.delivery_totals import ATTEMPT_BOUNDS_S, THROTTLE_BOUNDS_S, DeliveryTotals, Histogram
from actors.machine import facts as f
from actors.machine.outcome import Answered, Failed, NotSent, Outcome
from tests.unit.worlds.shard import RECEIVER, strict
from tests.unit.worlds.values import NOW, answer, event
from tests.unit.worlds.virtual_time import in_virtual_time


@pytest.mark.parametrize(
    ("value", "counts"),
    [(-3.0, [1, 0, 0]), (0.0, [1, 0, 0]), (1.0, [1, 0, 0]), (1.1, [0, 1, 0]), (9.0, [0, 0, 1])],
)
def test_a_value_falls_into_the_first_bucket_whose_bound_it_does_not_exceed(
    value: float, counts: list[int]
) -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.add(value)
    assert histogram.counts == counts
    assert histogram.sum == max(0.0, value)


@pytest.mark.parametrize(
    ("outcome", "status", "arrived"),
    [
        (Answered(status=204, latency_ms=20.0), "2xx", 1),
        (Answered(status=302, latency_ms=20.0), "3xx", 0),
        (Answered(status=429, latency_ms=20.0), "4xx", 0),
        (Answered(status=599, latency_ms=20.0), "5xx", 0),
        (Failed(error="timeout", detail="", latency_ms=20.0), "timeout", 0),
    ],
)
def test_an_attempt_counts_by_what_came_back(outcome: Outcome, status: str, arrived: int) -> None:
    totals = DeliveryTotals()
    totals.attempt_ended(outcome, [event(1)], NOW + 3.0)
    assert totals.attempts == {status: 1}
    assert totals.attempt_s.counts[ATTEMPT_BOUNDS_S.index(0.025)] == 1
    assert totals.attempt_s.sum == 0.02
    assert (sum(totals.arrival_s.counts), totals.arrival_s.sum) == (arrived, 3.0 * arrived)


def test_a_429_counts_once_more_and_a_pause_by_its_length() -> None:
    totals = DeliveryTotals()
    for status in (200, 429, 404, 429):
        totals.attempt_ended(answer(status), [event(1)], NOW + 3.0)
    assert totals.answered_429 == 2
    totals.decided(f.Throttled(receiver=RECEIVER, events=(), at=100.0, attempt=1, until=110.0))
    assert (totals.throttle_s.sum, sum(totals.throttle_s.counts)) == (10.0, 1)
    assert totals.throttle_s.counts[THROTTLE_BOUNDS_S.index(15.0)] == 1


def test_an_attempt_that_was_not_sent_took_no_time() -> None:
    totals = DeliveryTotals()
    totals.attempt_ended(NotSent(why="the lease is over"), [event(1)], NOW + 3.0)
    assert totals.attempts == {"not_sent": 1}
    assert sum(totals.attempt_s.counts) == 0


def test_a_ping_is_not_a_delivery() -> None:
    totals = DeliveryTotals()
    totals.decided(f.Delivered(receiver=RECEIVER, events=(), at=0.0, attempt=1, kind="ping"))
    totals.decided(f.HandshakeStarted(receiver=RECEIVER, at=0.0, key="k"))
    totals.decided(f.HandshakeFailed(receiver=RECEIVER, at=0.0, key="k"))
    totals.decided(f.HandshakeFailed(receiver=RECEIVER, at=0.0, key="k"))
    totals.decided(f.HandshakeSucceeded(receiver=RECEIVER, at=0.0, key="k"))
    assert totals.handshakes == {"succeeded": 1, "failed": 2}
    assert set(totals.deliveries.values()) == {0}


@in_virtual_time
async def test_deliveries_count_by_their_meaning_and_dead_letters_by_their_reason() -> None:
    world = strict()
    world.sender.answers(503, answer(429, retry_after="1"), 200, *[400] * 5, 200)
    world.publish(3)
    await world.until(lambda: sum(world.totals.arrival_s.counts) == 2)
    assert world.totals.deliveries == {"delivered": 2, "failed": 1, "rejected": 5, "throttled": 1, "gone": 0}
    assert world.totals.dead_letters == {"rejected": 1}
    assert world.totals.attempts == {"5xx": 1, "4xx": 6, "2xx": 2}
