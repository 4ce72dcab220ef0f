"""Limiters keep their promises for requests at any times, and say when the next is allowed."""

from bisect import bisect_right
from collections.abc import Callable

import pytest
from angarium_receiver import FixedWindow, LeakyBucket, Limiter, SlidingWindow, TokenBucket, Verdict
from hypothesis import given
from hypothesis import strategies as st

LIMIT, WINDOW_S, RATE = 3, 10.0, 0.5
TIMES = st.lists(st.integers(0, 200).map(lambda quarter: quarter / 4), max_size=60).map(sorted)
KINDS: dict[str, Callable[[], Limiter]] = {
    "fixed": lambda: FixedWindow(LIMIT, WINDOW_S),
    "sliding": lambda: SlidingWindow(LIMIT, WINDOW_S),
    "token": lambda: TokenBucket(RATE, LIMIT),
    "leaky": lambda: LeakyBucket(RATE, LIMIT),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def allowed(limiter: Limiter, times: list[float]) -> list[float]:
    return [at for at in times if limiter.take(at).allowed]


def most_within(times: list[float], span_s: float) -> int:
    """The most that lie in a span of that length, its end left out."""
    return max((bisect_right(times, at + span_s - 1e-9) - n for n, at in enumerate(times)), default=0)


@given(TIMES)
def test_a_fixed_window_allows_so_many_in_each(times: list[float]) -> None:
    expected: dict[float, list[float]] = {}
    for at in times:
        expected.setdefault(at // WINDOW_S, []).append(at)
    first = [at for window in expected.values() for at in window[:LIMIT]]
    assert allowed(KINDS["fixed"](), times) == first


@given(TIMES)
def test_a_sliding_window_allows_so_many_in_any(times: list[float]) -> None:
    assert most_within(allowed(KINDS["sliding"](), times), WINDOW_S) <= LIMIT


@given(TIMES)
@pytest.mark.parametrize("kind", ["token", "leaky"])
def test_buckets_allow_the_rate_and_a_burst(kind: str, times: list[float]) -> None:
    found = allowed(KINDS[kind](), times)
    for n, at in enumerate(found):
        assert all(m - n + 1 <= LIMIT + RATE * (found[m] - at) + 1e-9 for m in range(n, len(found)))


@each_kind
@given(TIMES)
def test_the_next_is_allowed_when_it_is_said(kind: str, times: list[float]) -> None:
    limiter = KINDS[kind]()
    verdict = Verdict(True, 1, 1, 1, 0)
    at = 0.0
    for at in times:
        verdict = limiter.take(at)
        assert (verdict.wait_s == 0) is (verdict.remaining > 0)
    assert limiter.take(at + verdict.wait_s + 1e-9).allowed
    for _ in range(verdict.remaining - 1):
        assert limiter.take(at + 1e-9).allowed


@each_kind
@given(TIMES)
def test_a_refused_request_costs_nothing(kind: str, times: list[float]) -> None:
    plain, pushed = KINDS[kind](), KINDS[kind]()
    for at in times:
        first, verdict = pushed.take(at), plain.take(at)
        assert first.allowed is verdict.allowed
        if not verdict.allowed:
            assert pushed.take(at) == first


@each_kind
def test_a_clock_that_steps_back_allows_no_more(kind: str) -> None:
    limiter = KINDS[kind]()
    times = [100.0] * LIMIT + [0.0] * LIMIT
    assert len(allowed(limiter, times)) == LIMIT


def test_the_headers_say_what_is_left_and_when_to_come_back() -> None:
    assert Verdict(True, 10, 60.0, 9, 0.0).headers() == {
        "ratelimit-policy": '"default";q=10;w=60',
        "ratelimit": '"default";r=9;t=0',
    }
    refused = Verdict(False, 10, 59.5, 0, 2.1).headers()
    assert refused == {
        "ratelimit-policy": '"default";q=10;w=60',
        "ratelimit": '"default";r=0;t=3',
        "retry-after": "3",
    }
    assert Verdict(False, 1, 1, 0, 0.0).headers()["retry-after"] == "1"


@pytest.mark.parametrize("kind", [FixedWindow, SlidingWindow, TokenBucket, LeakyBucket])
@pytest.mark.parametrize("values", [(0, 1), (1, 0), (-1, 1), (1, float("nan")), (float("inf"), 1)])
def test_a_limit_of_nothing_is_an_error(
    kind: Callable[[float, float], Limiter], values: tuple[float, float]
) -> None:
    with pytest.raises(ValueError, match="above 0"):
        kind(*values)
