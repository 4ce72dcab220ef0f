"""A failure of this node delays an event, and counts neither against it nor against its receiver."""

from typing import Literal

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.configuration.policy import Offline, Retry
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.decide import FAILURES_IN_A_ROW_MAX
from actors.machine.evolve import evolve
from actors.machine.outcome import INTERNAL, OVERLOAD, PROXY, Answered, Failed
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.rules import Rule
from actors.machine.state import Counters, State
from actors.status import held_back
from angarium.delivery.http_exchange.transport import FailureKind
from tests.unit.worlds.values import NOW, Actor, answer, event, policy

OVERLOADED = Failed(error=OVERLOAD, detail="no connection became free in time", latency_ms=15000.0)
BROKEN = Failed(error=INTERNAL, detail="ZeroDivisionError", latency_ms=0.0)
REFUSED = Failed(error=PROXY, detail="proxy default: answered 403", latency_ms=3.0)
SOON_DISABLED = Offline(after_s=10, disable_after_s=100)


def test_the_edge_calls_it_by_the_same_name() -> None:
    assert (FailureKind.OVERLOAD, FailureKind.PROXY) == (OVERLOAD, PROXY)
    failures = [Failed(error=kind.value, detail="", latency_ms=1.0) for kind in FailureKind]
    assert [each.error for each in failures if each.is_our_failure] == [OVERLOAD, PROXY]


@pytest.mark.parametrize("outcome", [OVERLOADED, BROKEN, REFUSED], ids=[OVERLOAD, INTERNAL, PROXY])
def test_an_overloaded_attempt_waits_longer_each_time_and_is_not_given_up(outcome: Failed) -> None:
    actor = Actor(policy(offline=SOON_DISABLED, retry=Retry(base_s=1, max_attempts=2)))
    waits_s = []
    for attempt in range(1, 9):
        (fact,) = actor.ends(event(5), outcome, at=NOW + 1000 * attempt)
        assert isinstance(fact, f.AttemptFailed)
        waits_s.append(fact.next_at - fact.at)
        assert waits_s[-1] <= 2.0 ** (attempt - 1) + 1e-6
    assert max(waits_s) > 2.0
    (entry,) = actor.state.open
    assert (entry.attempts, entry.failures) == (8, 0)
    assert isinstance(actor.step(entry.next_at, head=event(5)), s.Post)
    assert actor.state.counters == Counters(failed_attempts=8)


@pytest.mark.parametrize("outcome", [OVERLOADED, BROKEN, REFUSED], ids=[OVERLOAD, INTERNAL, PROXY])
def test_the_receiver_is_not_failing(outcome: Failed) -> None:
    actor = Actor(policy(offline=SOON_DISABLED))
    for at in (NOW, NOW + 200, NOW + 400):
        actor.ends(event(5), outcome, at=at)
    assert (actor.state.failing_since, actor.state.disabled) == (None, "")
    actor.ends(event(5), answer(500), at=NOW + 600)
    assert (actor.state.failing_since, actor.state.disabled) == (NOW + 600, "")


def test_the_receiver_stays_failing_if_it_failed_before() -> None:
    actor = Actor(policy(offline=SOON_DISABLED))
    actor.ends(event(5), answer(500), at=NOW)
    actor.ends(event(5), OVERLOADED, at=NOW + 200)
    assert (actor.state.failing_since, actor.state.disabled) == (NOW, "")
    _, disabled = actor.ends(event(5), answer(500), at=NOW + 201)
    assert disabled == f.Disabled(receiver="acme.billing", at=NOW + 201, reason="failing")


def test_an_outage_of_the_proxy_after_one_failure_disables_no_receiver() -> None:
    actor = Actor(policy(offline=SOON_DISABLED))
    actor.ends(event(5), answer(500), at=NOW)
    for hours in range(1, 100):
        actor.ends(event(5), REFUSED, at=NOW + 5 + 3600 * hours - 3600)
        assert held_back(actor.state, actor.policy, NOW + 3600 * hours) != "offline"
    ended_at = NOW + 3600 * 100
    actor.ends(event(5), answer(500), at=ended_at)
    assert (actor.state.disabled, actor.state.failing_s(ended_at)) == ("", 5)
    assert actor.state.consecutive_failures == 2
    actor.ends(event(5), answer(500), at=ended_at + 94)
    assert actor.state.disabled == ""
    actor.ends(event(5), answer(500), at=ended_at + 95)
    assert actor.state.disabled == "failing"


Kind = Literal["success", "failure", "ours", "throttled", "rejected", "our ping", "ping"]
OUTCOMES: dict[Kind, Answered | Failed] = {
    "success": answer(200), "failure": answer(500), "ours": REFUSED, "throttled": answer(429),
    "rejected": answer(400), "our ping": OVERLOADED, "ping": answer(500),
}  # fmt: skip
COURSE = st.lists(st.tuples(st.integers(0, 200), st.sampled_from(sorted(OUTCOMES))), max_size=30)


def counted_s(course: list[tuple[int, Kind]]) -> int:
    """The rule, plainly: time counts from the first failure on, except after attempts that failed by us."""
    total_s, fails, stands = 0, False, False
    for passed_s, kind in course:
        total_s += passed_s * (fails and not stands)
        stands = kind.startswith("our")
        if kind in ("success", "failure"):
            fails = kind == "failure"
        if not fails:
            total_s = 0
    return total_s


@given(COURSE, st.integers(0, 400))
@example([(0, "failure"), (5, "ours"), (7, "throttled")], 9)
@example([(0, "failure"), (5, "our ping"), (7, "rejected")], 9)
@example([(0, "failure"), (5, "ours"), (7, "ours"), (7, "ping")], 9)
@example([(0, "ours"), (5, "failure"), (7, "ours"), (7, "failure")], 9)
def test_time_after_our_failures_does_not_count_as_failing(
    course: list[tuple[int, Kind]], later_s: int
) -> None:
    actor, now = Actor(policy(offline=Offline(after_s=1, disable_after_s=10**6))), NOW
    for passed_s, kind in course:
        now += passed_s
        before_s = actor.state.failing_s(now)
        actor.ends(None if "ping" in kind else event(5), OUTCOMES[kind], at=now)
        assert kind == "success" or actor.state.failing_s(now) == before_s
    assert actor.state.failing_s(now + later_s) == counted_s([*course, (later_s, "throttled")])
    replayed = State(receiver="acme.billing")
    for fact in msgspec.json.decode(msgspec.json.encode(actor.facts), type=list[f.Fact]):
        replayed = evolve(replayed, fact)
    assert replayed == actor.state


def test_five_failures_in_a_row_pause_a_relaxed_receiver_too() -> None:
    """Otherwise each of its events would be tried in turn, and make the lack of connections worse."""
    actor = Actor(policy(order="relaxed"))
    for position in range(1, FAILURES_IN_A_ROW_MAX + 1):
        assert actor.state.backoff_until == 0.0
        actor.ends(event(position), OVERLOADED)
    until = actor.state.backoff_until
    assert until > NOW
    assert (actor.state.failing_since, actor.state.consecutive_failures) == (None, 0)
    assert actor.step(until, head=event(9), in_flight=(1,)) == s.Rest(Rule.IN_FLIGHT)
    actor.ends(event(1), answer(500), at=until)
    assert (actor.state.consecutive_failures, actor.state.backoff_until) == (1, 0.0)


@pytest.mark.parametrize("end", ["success", "failure", "resume", "url", "forget"])
def test_our_failures_in_a_row_end_with_the_receivers_next_answer_or_an_operator(end: str) -> None:
    actor = Actor(policy(order="relaxed"))
    for position in range(1, FAILURES_IN_A_ROW_MAX + 1):
        actor.ends(event(position), OVERLOADED)
    now = actor.state.backoff_until
    match end:
        case "success" | "failure":
            actor.ends(event(1), answer(200 if end == "success" else 500), at=now)
        case "resume":
            actor.do(c.ResumeReceiver(), at=now)
        case "url":
            actor.adopt(policy(order="relaxed", url="https://other.example"), at=now)
        case _:
            actor.do(c.ForgetBacklog(position=9, waiting=0), at=now)
    held = {position: event(position) for position in range(1, 10)}
    assert actor.state.failures_in_a_row == (end == "failure")
    assert end == "forget" or isinstance(actor.step(now + 9, open_in_memory=held, in_flight=(9,)), s.Post)


def test_facts_that_do_not_say_whose_fault_it_was_are_read_as_the_receivers() -> None:
    old = b'{"fact":"attempt_failed","receiver":"a.b","events":[],"at":1,"attempt":1,"error":"overload: no"}'
    assert msgspec.json.decode(old, type=f.AttemptFailed).ours is False
