"""The throughput at which events come and go, and what limits a backlog."""

import msgspec
import pytest

from actors.configuration.policy import BatchLimits, Policy, Rate
from actors.machine import facts as f
from actors.machine.numbering import Numbered
from actors.machine.pace.pace import PaceLimits
from actors.machine.scheduling.phases import Phase
from angarium.operations.receiver_list.listing import ReceiverFindings
from angarium.operations.receiver_list.throughput import (
    BacklogThroughput,
    Bottleneck,
    Counts,
    counted,
    empty_in_s,
    throughput,
)
from angarium.operations.receiver_list.top import top_screen
from streams.journal_feed.recent_flushes import RecentFlush
from streams.observation.receiver_snapshots import BacklogCount

SPAN_S = 10.0
RECEIVER = "acme.billing"


def attempt(kind: type[f.Delivered] | type[f.AttemptFailed], latency_ms: float) -> f.Fact:
    event = Numbered(position=1, sequence=1, id="a", stored_at=0.0)
    return kind(receiver=RECEIVER, events=(event,), at=1.0, attempt=1, latency_ms=latency_ms)


def test_a_flush_is_counted_by_receiver() -> None:
    facts = (
        attempt(f.Delivered, 10.0),
        attempt(f.AttemptFailed, 20.0),
        f.Forgot(receiver="acme.shop", at=1.0, position=9, next_sequence=5, discarded=4),
        f.Claimed(epoch=1, at=1.0, clean=True, position=0),
    )
    assert counted(RecentFlush(1.0, facts)) == {
        RECEIVER: Counts(settled=1, attempts=2, failed=1, busy_ms=30.0, positions={1}),
        "acme.shop": Counts(settled=4, discarded_to=9),
    }


def test_failures_before_a_resume_are_not_counted() -> None:
    """A new URL resumes a receiver, too."""
    failed, resumed = attempt(f.AttemptFailed, 20.0), f.Resumed(receiver=RECEIVER, at=2.0)
    retargeted = f.Retargeted(receiver=RECEIVER, target="another")
    found = counted(RecentFlush(1.0, (failed, failed)))[RECEIVER]
    found.add(counted(RecentFlush(2.0, (failed, resumed, failed)))[RECEIVER])
    assert (found.attempts, found.failed, found.resumed_at) == (4, 1, 2.0)
    found.add(counted(RecentFlush(3.0, (failed,)))[RECEIVER])
    assert (found.failed, found.resumed_at) == (2, 2.0)
    found.add(counted(RecentFlush(4.0, (failed, retargeted)))[RECEIVER])
    assert (found.attempts, found.failed, found.resumed_at) == (6, 0, 4.0)


def policy(rate: float | None = None, order: str = "strict", batch: BatchLimits | None = None) -> Policy:
    limits = [] if rate is None else [Rate(limit=rate)]
    members = {
        "url": "https://example.com/",
        "rate": limits,
        "order": order,
        "concurrency": 4,
        "batch": batch,
    }
    return msgspec.convert(members, Policy)


@pytest.mark.parametrize(
    ("limited_by", "counts", "phase", "of"),
    [
        ("pause", Counts(), "paused", policy()),
        ("throttle", Counts(), "throttled", policy()),
        ("failure", Counts(), "offline", policy()),
        ("failure", Counts(), "unverified", policy()),
        ("failure", Counts(attempts=10, failed=6, busy_ms=9_000), "active", policy(rate=1)),
        ("rate", Counts(settled=50, attempts=50, busy_ms=9_000), "active", policy(rate=5)),
        ("rate", Counts(), "active", policy(rate=0.05)),
        ("latency", Counts(settled=50, attempts=50, busy_ms=9_000), "active", policy(rate=500)),
        ("latency", Counts(settled=90, attempts=90, busy_ms=30_000), "active", policy(order="relaxed")),
        ("node", Counts(settled=90, attempts=90, busy_ms=9_000), "active", policy(order="relaxed")),
        ("node", Counts(), "active", None),
        ("unknown", Counts(attempts=10, resumed_at=9.0), "active", None),
        ("failure", Counts(attempts=10, failed=6, resumed_at=9.0), "active", None),
        ("batch", Counts(), "active", policy(batch=BatchLimits(max_events=101, linger_s=60))),
        ("node", Counts(), "active", policy(batch=BatchLimits(max_events=100, linger_s=60))),
        ("node", Counts(), "active", policy(batch=BatchLimits(max_events=101, linger_s=50))),
    ],
)
def test_each_backlog_has_its_limit(
    limited_by: Bottleneck, counts: Counts, phase: Phase, of: Policy | None
) -> None:
    found = throughput(counts, SPAN_S, arrived=0, waiting=100, oldest_s=60.0, phase=phase, policy=of)
    assert found.limited_by == limited_by


@pytest.mark.parametrize(
    ("limited_by", "counts", "learnt"),
    [
        ("pace", Counts(settled=2, attempts=3, busy_ms=30), PaceLimits(per_second=0.3)),
        ("pace", Counts(), PaceLimits(per_second=0.1)),
        ("node", Counts(settled=2, attempts=3, busy_ms=30), PaceLimits(per_second=3.0)),
        ("pace", Counts(settled=9, attempts=9, busy_ms=9_000), PaceLimits(in_flight=1)),
        ("latency", Counts(settled=9, attempts=9, busy_ms=39_000), PaceLimits(in_flight=4)),
        ("rate", Counts(settled=50, attempts=50), PaceLimits(per_second=5.0)),
    ],
)
def test_a_pace_that_answers_taught_is_not_blamed_on_the_nodes(
    limited_by: Bottleneck, counts: Counts, learnt: PaceLimits
) -> None:
    of = policy(rate=5 if limited_by == "rate" else 500, order="relaxed")
    found = throughput(
        counts, SPAN_S, arrived=0, waiting=9, oldest_s=60.0, phase="active", policy=of, learnt=learnt
    )
    assert found.limited_by == limited_by


def test_a_learnt_pace_too_slow_to_be_measured_says_when_nothing_will_wait() -> None:
    found = throughput(
        Counts(), SPAN_S, arrived=0, waiting=6, oldest_s=60.0, phase="active", policy=policy(),
        learnt=PaceLimits(per_second=0.1),
    )  # fmt: skip
    assert (found.out_per_s, found.empty_in_s) == (0.0, 60.0)


@pytest.mark.parametrize(
    ("settled", "learnt", "batch", "empty_in_s"),
    [
        (2, PaceLimits(per_second=0.1), None, 2950.0),
        (2, PaceLimits(per_second=0.1), BatchLimits(max_events=10), 1475.0),
        (0, PaceLimits(per_second=0.1), BatchLimits(max_events=10), 2950.0),
        (2, PaceLimits(in_flight=1), None, 1475.0),
        (2, PaceLimits(per_second=3.0, in_flight=1), None, 1475.0),
    ],
    ids=["rate", "batches", "no batch yet", "in flight", "rate not used up"],
)
def test_a_learnt_rate_that_is_used_up_says_when_nothing_will_wait(
    settled: int, learnt: PaceLimits, batch: BatchLimits | None, empty_in_s: float
) -> None:
    counts = Counts(settled=settled, attempts=settled, busy_ms=9_000 if learnt.in_flight else 0)
    found = throughput(
        counts, 10.0, arrived=0, waiting=295, oldest_s=90.0, phase="active",
        policy=policy(order="relaxed", batch=batch), learnt=learnt,
    )  # fmt: skip
    assert (found.limited_by, found.empty_in_s) == ("pace", empty_in_s)


def test_a_backlog_that_is_simply_on_its_way_has_no_limit() -> None:
    found = throughput(
        Counts(), SPAN_S, arrived=None, waiting=3, oldest_s=0.5, phase="active", policy=policy()
    )
    assert found.limited_by is None
    nothing = throughput(
        Counts(), SPAN_S, arrived=None, waiting=0, oldest_s=0.0, phase="paused", policy=policy()
    )
    assert (nothing.limited_by, nothing.empty_in_s) == (None, 0.0)


@pytest.mark.parametrize("oldest_s", [0.5, SPAN_S - 1])
def test_a_receiver_that_was_idle_is_not_said_to_be_as_slow_as_it_was(oldest_s: float) -> None:
    """Seven of thirty events went in the 1.4 s since they came."""
    counts = Counts(settled=7, attempts=7, busy_ms=70)
    found = throughput(
        counts, SPAN_S, arrived=0, waiting=22, oldest_s=oldest_s, phase="active", policy=policy(rate=5)
    )
    assert found.empty_in_s is None


@pytest.mark.parametrize(("oldest_s", "limited_by"), [(SPAN_S - 1, "unknown"), (SPAN_S, "node")])
def test_after_a_burst_nothing_is_blamed_before_a_whole_span_is_measured(
    oldest_s: float, limited_by: Bottleneck
) -> None:
    """The receiver had nothing to do before, so that it looks idle over the span."""
    counts = Counts(settled=5, attempts=5, busy_ms=4_000)
    found = throughput(
        counts, SPAN_S, arrived=95, waiting=90, oldest_s=oldest_s, phase="active", policy=policy()
    )
    assert (found.limited_by, found.empty_in_s) == (limited_by, None)


def test_the_throughput_is_that_of_the_span() -> None:
    counts = Counts(settled=30, attempts=30, busy_ms=9_900)
    found = throughput(
        counts, SPAN_S, arrived=10, waiting=100, oldest_s=60.0, phase="active", policy=policy()
    )
    assert (found.in_per_s, found.out_per_s, found.empty_in_s) == (1.0, 3.0, 50.0)
    even = throughput(counts, SPAN_S, arrived=None, waiting=0, oldest_s=0.0, phase="idle", policy=policy())
    assert even.in_per_s == even.out_per_s == 3.0  # What came in has gone out.


def test_a_slow_rate_is_not_measured_but_known() -> None:
    """An attempt every 20 s is none in most spans."""
    found = throughput(
        Counts(), SPAN_S, arrived=0, waiting=6, oldest_s=60.0, phase="active", policy=policy(rate=0.05)
    )
    assert (found.out_per_s, found.empty_in_s) == (0.0, 120.0)


def test_a_backlog_that_grows_is_never_empty() -> None:
    assert empty_in_s(10, in_per_s=2.0, out_per_s=2.0) is None
    assert empty_in_s(10, in_per_s=2.0, out_per_s=4.0) == 5.0


async def test_receivers_that_wait_longest_come_first() -> None:
    def row(
        name: str, out_per_s: float, waiting: int = 0, oldest_at: float | None = None
    ) -> ReceiverFindings:
        going = BacklogThroughput(in_per_s=0.0, out_per_s=out_per_s, empty_in_s=None, limited_by=None)
        return ReceiverFindings(name, b"{}", waiting=BacklogCount(waiting, oldest_at), throughput=going)

    rows = [row("a.idle", 1.0), row("a.busy", 5.0), row("a.late", 1.0, 7, 20.0), row("a.later", 1.0, 2, 10.0)]
    rows.append(ReceiverFindings("a.unknown", b"{}"))
    found = await top_screen(rows, 3, [])
    assert [each.receiver for each in found.receivers] == ["a.later", "a.late", "a.busy"]
    assert (found.count, found.behind, found.waiting, found.out_per_s) == (5, 2, 9, 8.0)
