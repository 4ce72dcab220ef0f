"""When waiting facts are flushed: few facts share a tick, many or urgent ones are flushed at once."""

import math

import pytest

from streams.journal.journal import (
    FLUSH_AT_EVENTS,
    FLUSH_TICK_S,
    GATHER_FACTS_S,
    SMALL_FLUSH_EVENTS,
    facts_due_at,
)

SINCE = 1000.013


def is_tick(at: float) -> bool:
    return math.isclose(at, round(at / FLUSH_TICK_S) * FLUSH_TICK_S, abs_tol=1e-6, rel_tol=0)


@pytest.mark.parametrize("cut_at", [0.0, SINCE - 0.01])
@pytest.mark.parametrize(("count", "urgent"), [(FLUSH_AT_EVENTS, False), (1, True)])
def test_many_and_urgent_facts_wait_for_nothing(count: int, cut_at: float, urgent: bool) -> None:
    assert facts_due_at(count, SINCE, cut_at, urgent=urgent) == SINCE


@pytest.mark.parametrize("count", [1, SMALL_FLUSH_EVENTS, FLUSH_AT_EVENTS - 1])
def test_the_first_facts_after_a_silence_wait_for_the_next_tick(count: int) -> None:
    due_at = facts_due_at(count, SINCE, SINCE - GATHER_FACTS_S, urgent=False)
    assert SINCE <= due_at <= SINCE + FLUSH_TICK_S
    assert is_tick(due_at)


def test_a_few_facts_wait_for_the_last_tick_in_time() -> None:
    due_at = facts_due_at(SMALL_FLUSH_EVENTS - 1, SINCE, SINCE - 0.01, urgent=False)
    latest = SINCE + GATHER_FACTS_S
    assert latest - FLUSH_TICK_S <= due_at <= latest
    assert is_tick(due_at)


def test_more_facts_wait_for_as_long_as_facts_are_gathered() -> None:
    assert facts_due_at(SMALL_FLUSH_EVENTS, SINCE, SINCE - 0.01, urgent=False) == SINCE + GATHER_FACTS_S
