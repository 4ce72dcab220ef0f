"""Timers that share their instants are never early, hardly late, and few."""

from hypothesis import given
from hypothesis.strategies import floats

from actors.coalescing import TOGETHER_S, coalesced


@given(floats(0, 1e7))
def test_a_timer_is_never_early_and_hardly_late(at: float) -> None:
    assert 0 <= coalesced(at) - at <= TOGETHER_S


def test_many_timers_ring_at_few_instants() -> None:
    assert len({coalesced(1000.0 + number / 213) for number in range(1, 214)}) == 1 / TOGETHER_S
