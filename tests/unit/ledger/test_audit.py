"""The audit of promise 4: windows compared with the limit in force; an independent bucket is the judge."""

import time

from hypothesis import given
from hypothesis import strategies as st

from actors.machine.bucket import Bucket, refill, take
from actors.machine.bucket import RateLimit as InForce
from angarium.cli.ledger_queries.audit import lines
from angarium.ledger.audit import (
    BARS_MAX,
    CLOCK_TOLERANCE_MS,
    Bar,
    LearntRange,
    LimitPeriod,
    Window,
    allowance,
    bars,
    busiest,
    lengths,
)
from angarium.operations.ledger_queries import audit
from angarium.operations.ledger_queries.learnt_limits import LearntLimits
from angarium.operations.ledger_queries.ledger_access import LedgerLag

TEN = [LimitPeriod(0, 10.0, 2)]


def test_the_busiest_window_is_found() -> None:
    starts = [0, 500, 600, 610, 5000]
    found = busiest(starts, TEN, 0.2)
    assert (found.at, found.attempts, found.allowed, found.exceeded) == (500, 3, 4, 0)


def test_a_window_with_too_many_is_found_among_any_others() -> None:
    starts = [*range(0, 10_000, 100), *range(10_000, 10_010), *range(11_000, 20_000, 100)]
    found = busiest(starts, TEN, 1.0)
    assert found.at == 9_100
    assert found.allowed is not None
    assert found.attempts > found.allowed
    assert found.exceeded


def test_an_audit_rests_as_long_as_it_works() -> None:
    """The audit runs in a thread, and other requests wait while it holds the interpreter."""
    starts = range(0, 600_000, 10)
    began, worked = time.perf_counter(), time.thread_time()
    windows, _ = audit._judged(list(starts), TEN, LearntLimits((), (), (), TEN))
    worked = time.thread_time() - worked
    assert windows[0].exceeded
    assert worked > 4 * audit.WORK_BEFORE_REST_S, "a test of less says nothing"
    assert time.perf_counter() - began > 1.6 * worked


def test_each_of_several_limits_is_audited() -> None:
    """Ten a second with a burst of 60 would allow it; two a second with a burst of 1 do not."""
    both = [LimitPeriod(0, 10.0, 60, ((2.0, 1),))]
    assert lengths(both) == [0.5, 1.0, 6.0]
    found = busiest([0, 100, 200, 300], both, 1.0)
    assert (found.attempts, found.allowed, found.exceeded) == (4, 3, 1)
    assert busiest([0, 100, 200, 300], [LimitPeriod(0, 10.0, 60)], 1.0).exceeded == 0


def test_without_a_limit_nothing_is_exceeded() -> None:
    found = busiest([1] * 1000, [LimitPeriod(0)], 1.0)
    assert (found.attempts, found.allowed, found.exceeded) == (1000, None, 0)
    assert lengths([LimitPeriod(0)]) == [1.0]


def test_across_a_change_each_rate_counts_for_its_time_and_the_higher_burst() -> None:
    limits = [LimitPeriod(0, 10.0, 1), LimitPeriod(10_000, 100.0, 5)]
    tolerance = CLOCK_TOLERANCE_MS / 1000
    assert allowance(limits, 9_000, 10_000) == int(5 + 10 * (1 + tolerance) + 100 * tolerance)
    assert allowance(limits, 9_500, 10_500) == int(5 + 10 * (0.5 + tolerance) + 100 * (0.5 + tolerance))
    lowered = [LimitPeriod(0, 10.0, 5), LimitPeriod(10_000, 10.0, 1)]
    assert allowance(lowered, 9_500, 10_500) == int(5 + 10 * (1 + 2 * tolerance))
    assert allowance([LimitPeriod(0, 10.0, 1), LimitPeriod(10_000)], 9_500, 10_500) is None
    assert lengths(limits) == [0.05, 0.1, 1.0]


@given(
    st.lists(st.integers(0, 3000), min_size=20, max_size=60),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 9), st.integers(1, 4)), min_size=2, max_size=4),
    st.sampled_from([0.2, 1.0]),
)
def test_a_window_within_one_limit_is_judged_as_any_other(
    starts: list[int], periods: list[tuple[int, int, int]], length_s: float
) -> None:
    """A rate of 0 stands for no limit."""
    starts.sort()
    ats = [0, *sorted(at for at, *_ in periods[1:])]
    limits = [
        LimitPeriod(at, float(rate) or None, burst) for at, (_, rate, burst) in zip(ats, periods, strict=True)
    ]
    windows = [(at, at + length_s * 1000) for at in starts]
    counts = [
        sum(since <= each < until for each in starts) - starts[:n].count(starts[n])
        for n, (since, until) in enumerate(windows)
    ]
    allowed = [allowance(limits, *window) for window in windows]
    over = [most is not None and count > most for count, most in zip(counts, allowed, strict=True)]
    found = busiest(starts, limits, length_s)
    assert found.exceeded == sum(over)
    assert found.at is not None
    assert found.allowed == allowance(limits, found.at, found.at + length_s * 1000)


@given(
    st.floats(0.5, 50.0),
    st.integers(1, 20),
    st.lists(st.integers(0, 800), min_size=1, max_size=80),
    st.booleans(),
)
def test_the_rate_limit_of_a_bucket_is_never_exceeded_and_one_burst_more_always_is(
    rate: float, burst: int, pauses: list[int], again: bool
) -> None:
    limit = InForce(rate, burst)
    bucket, now, starts = Bucket(float(burst), 0.0, 1), 0, list[int]()
    for pause in pauses:
        now += pause
        bucket = refill(bucket, limit, now / 1000, 1)
        if (taken := take(bucket)) is not None:
            bucket = taken
            starts.append(now)
    limits = [LimitPeriod(0, rate, burst)]
    for length_s in lengths(limits):
        assert not busiest(starts, limits, length_s).exceeded
    more = sorted(starts + [starts[0]] * (burst + int(rate) + 2))
    assert busiest(more, limits, 1.0).exceeded


def test_the_chart_has_every_attempt_and_shows_the_busiest_second_of_each_part() -> None:
    starts = sorted([*range(0, 60_000, 500), 31_001, 31_002])
    drawn = bars(starts, TEN, 0, 60_000)
    assert len(drawn) == BARS_MAX
    assert sum(bar.attempts for bar in drawn) == len(starts)
    assert [bar.most for bar in drawn].count(2) == BARS_MAX - 1
    assert max(bar.most for bar in drawn) == 4
    assert all(bar.allowed == 12 for bar in drawn)


def test_a_bar_shows_the_allowance_of_the_second_that_it_counts() -> None:
    """The rate is lowered within the only part: 4 of 5 attempts were made before, and 3 of 3 after."""
    limits = [LimitPeriod(0, 3.0, 2), LimitPeriod(1100, 1.0, 2)]
    starts = [0, 10, 20, 30, 1200, 1300, 1400]
    assert not busiest(starts, limits, 1.0).exceeded
    (drawn,) = bars(starts, limits, 0, 1401)
    assert (drawn.attempts, drawn.most, drawn.allowed) == (7, 3, 3)


@given(
    st.lists(st.integers(0, 2500), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=3),
)
def test_a_bar_is_over_its_limit_if_and_only_if_a_second_is(
    starts: list[int], periods: list[tuple[int, int, int]]
) -> None:
    """A rate of 0 stands for no limit."""
    starts.sort()
    ats = [0, *sorted(at for at, *_ in periods[1:])]
    limits = [
        LimitPeriod(at, float(rate) or None, burst) for at, (_, rate, burst) in zip(ats, periods, strict=True)
    ]
    drawn = bars(starts, limits, starts[0], starts[-1] + 1)
    over = [each for each in drawn if each.allowed is not None and each.most > each.allowed]
    assert bool(over) == bool(busiest(starts, limits, 1.0).exceeded)
    assert sum(each.attempts for each in drawn) == len(starts)


def test_no_part_of_the_chart_is_shorter_than_a_second() -> None:
    assert [bar.attempts for bar in bars([5], TEN, 5, 6)] == [1]
    drawn = bars([0, 100, 3400], TEN, 0, 3401)
    assert [bar.attempts for bar in drawn] == [2, 0, 1]


def test_the_text_names_the_limit_of_a_window_and_leaves_out_single_attempts() -> None:
    limits = [LimitPeriod(0, 23.0, 1), LimitPeriod(10_000, 10.0, 2)]
    windows = [Window(1 / 23, 500, 1, 1), Window(0.2, 500, 2, 4), Window(1.0, 10_500, 9, 12, 0)]
    known = LedgerLag(as_of=None, behind_s=0.0, gaps=[])
    found = audit.Audit("acme.billing", "kept", "since", "until", 9, limits, windows, [], known)
    busy = [line for line in lines(found) if "busiest" in line]
    assert busy == [
        "  busiest 200 ms: 2 of 4 from 1970-01-01T00:00:00.500Z (23 a second, burst 1)",
        "  busiest 1 s: 9 of 12 from 1970-01-01T00:00:10.500Z (10 a second, burst 2)",
    ]


def test_a_receiver_without_a_configured_limit_is_told_its_learnt_rates() -> None:
    chart = [
        Bar(0, 9, 18, None, LearntRange(5.0, 12.0, "smart", 8.0)), Bar(1000, 0, 0, None),
        Bar(2000, 9, 18, None, LearntRange(9.0, 21.44, "smart", 8.0)),
    ]  # fmt: skip
    windows, known = [Window(1.0, 500, 18, None, 0)], LedgerLag(as_of=None, behind_s=0.0, gaps=[])
    no_limit = [LimitPeriod(0, None, 1)]
    found = audit.Audit("acme.billing", "no_limit", "since", "until", 18, no_limit, windows, chart, known)
    said = lines(found)
    assert said[0] == "acme.billing: no rate is configured; its learnt rate was 5 to 21.4 a second"
    assert "  busiest 1 s: 18 attempts from 1970-01-01T00:00:00.500Z" in said
    never = audit.Audit("acme.billing", "no_limit", "since", "until", 18, no_limit, windows, [], known)
    assert lines(never)[0] == "acme.billing: no limit was in force"
