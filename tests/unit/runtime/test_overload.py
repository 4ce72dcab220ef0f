"""A failure of this node delays an event, and counts neither against it nor against its receiver."""

import msgspec
import pytest

from actors.configuration.policy import Offline, Retry
from actors.machine import facts as f
from actors.machine.decide import FAILURES_IN_A_ROW_MAX
from actors.machine.outcome import INTERNAL, OVERLOAD, PROXY, Failed
from actors.machine.scheduling import steps as s
from actors.machine.state import Counters
from angarium.delivery.http_exchange.transport import FailureKind
from tests.unit.worlds.values import NOW, Actor, answer, event, policy

OVERLOADED = Failed(error=OVERLOAD, detail="no connection became free in time", latency_ms=15000.0)
BROKEN = Failed(error=INTERNAL, detail="ZeroDivisionError", latency_ms=0.0)
REFUSED = Failed(error=PROXY, detail="proxy default: answered 403", latency_ms=3.0)
SOON_DISABLED = Offline(after_s=10, disable_after_s=100)


def test_the_edge_calls_it_by_the_same_name() -> None:
    assert (FailureKind.OVERLOAD, FailureKind.PROXY) == (OVERLOAD, PROXY)
    failures = [Failed(error=kind.value, detail="", latency_ms=1.0) for kind in FailureKind]
    assert [each.error for each in failures if each.ours] == [OVERLOAD, PROXY]


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


def test_five_failures_in_a_row_pause_a_relaxed_receiver_too() -> None:
    """Otherwise each of its events would be tried in turn, and make the lack of connections worse."""
    actor = Actor(policy(order="relaxed"))
    for position in range(1, FAILURES_IN_A_ROW_MAX + 1):
        assert actor.state.backoff_until == 0.0
        actor.ends(event(position), OVERLOADED)
    assert actor.state.backoff_until > NOW
    assert actor.state.failing_since is None


def test_facts_that_do_not_say_whose_fault_it_was_are_read_as_the_receivers() -> None:
    old = b'{"fact":"attempt_failed","receiver":"a.b","events":[],"at":1,"attempt":1,"error":"overload: no"}'
    assert msgspec.json.decode(old, type=f.AttemptFailed).ours is False
