"""Timers of one tick fire together, once a tick; those of many offsets never fire all at once."""

from collections import Counter

from hypothesis import given
from hypothesis.strategies import floats, integers

from actors.aligned_timers import OFFSETS_PER_TICK, first_tick_from, next_tick

times, offsets = floats(0, 1e7), integers(0, 1 << 40)


@given(times, offsets)
def test_a_timer_rings_within_one_and_a_half_ticks(now: float, offset: int) -> None:
    assert 0.2499 < next_tick(now, 0.5, offset) - now < 0.7501


@given(times, offsets, floats(-0.1, 0.1))
def test_a_timer_that_rings_early_or_late_keeps_its_tick(now: float, offset: int, late_s: float) -> None:
    due = next_tick(now, 0.5, offset)
    assert abs(next_tick(due + late_s, 0.5, offset) - due - 0.5) < 1e-6


@given(times)
def test_the_first_tick_from_a_moment_on_is_less_than_one_away(at: float) -> None:
    due = first_tick_from(at, 0.05)
    assert at - 1e-6 <= due < at + 0.05 + 1e-6
    assert abs(due - round(due / 0.05) * 0.05) < 1e-6


@given(times)
def test_many_timers_share_few_instants_evenly(now: float) -> None:
    shared = Counter(
        round(next_tick(now, 0.5, offset) % 0.5, 6) % 0.5 for offset in range(8 * OFFSETS_PER_TICK)
    )
    assert list(shared.values()) == [8] * OFFSETS_PER_TICK
