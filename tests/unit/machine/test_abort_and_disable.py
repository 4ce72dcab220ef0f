"""Headers of an answer that steer: `angarium-abort` and `angarium-disable`."""

from typing import Any

from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.rules import Rule
from tests.unit.worlds.values import NOW, Actor, answer, event, given_up, retrying


def _only(facts: list[f.Fact]) -> Any:
    (fact,) = facts
    return fact


def test_angarium_disable_counts_as_410() -> None:
    actor = Actor()
    failed, disabled = actor.ends(event(5), answer(500, angarium_disable="true"))
    assert isinstance(failed, f.AttemptFailed)
    assert (failed.gone, failed.error) == (True, "HTTP 500, angarium-disable")
    assert disabled == f.Disabled(receiver="acme.billing", at=NOW, reason="asked")
    assert (actor.state.failing_since, actor.state.consecutive_failures) == (None, 0)
    actor.do(c.ResumeReceiver(), at=NOW + 9)
    assert actor.step(NOW + 9, head=event(5)) == s.Post(event(5), 1, 2, has_token=True)


def test_angarium_disable_on_a_success_settles_the_event_and_holds_the_next_one_back() -> None:
    actor = Actor()
    delivered, disabled = actor.ends(event(5), answer(200, angarium_disable="true"))
    assert isinstance(delivered, f.Delivered)
    assert disabled == f.Disabled(receiver="acme.billing", at=NOW, reason="asked")
    assert actor.step(NOW, head=event(6)) == s.Park(Rule.DISABLED)


def test_a_ping_disables_nothing() -> None:
    actor = Actor()
    assert isinstance(_only(actor.ends(None, answer(200, angarium_disable="true"))), f.Delivered)
    assert isinstance(_only(actor.ends(None, answer(500, angarium_disable="true"))), f.AttemptFailed)


def test_angarium_abort_rejects_the_event_at_once() -> None:
    actor = Actor(retrying(rejected_attempts=1000))
    failed = _only(actor.ends(event(5), answer(500, angarium_abort="true")))
    assert isinstance(failed, f.AttemptFailed)
    assert (failed.aborted, failed.rejected, failed.error) == (True, True, "HTTP 500, angarium-abort")
    assert (actor.state.failing_since, actor.state.consecutive_failures) == (None, 0)
    assert actor.step(NOW, head=event(5)) == given_up("rejected", event(5))


def test_an_answer_may_reject_the_event_and_disable_the_receiver() -> None:
    actor = Actor()
    actor.ends(event(5), answer(410, angarium_abort="true"))
    assert actor.state.disabled == "gone"
    assert actor.step(NOW, head=event(5)) == given_up("rejected", event(5))
