"""The alert about a receiver that does not prove itself: when it is raised, and when it is over."""

from typing import Any

import pytest

from actors.configuration.policy import AlertLimits, Policy
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.alerts.judging import alert_changes
from actors.machine.evolve import evolve
from actors.machine.handshake.proof import handshake_key
from actors.machine.state import Alert, State
from tests.unit.worlds.values import NOW, policy

RECEIVER = "acme.billing"
ASKING = policy(handshake="cloudevents")
KEY = handshake_key(ASKING)


def failed(after_s: float, **members: Any) -> f.HandshakeFailed:
    return f.HandshakeFailed(receiver=RECEIVER, at=NOW + after_s, key=KEY, error="HTTP 404", **members)


def after(*facts: f.Fact, **members: Any) -> State:
    """The state after a handshake began, and these facts."""
    state = State(receiver=RECEIVER, opened=True, **members)
    for fact in (f.HandshakeStarted(receiver=RECEIVER, at=NOW, key=KEY), *facts):
        state = evolve(state, fact)
    return state


def judged(state: State, at_s: float, configured: Policy = ASKING) -> list[tuple[str, str]]:
    """The changes of this alert, and why."""
    seen = c.JudgeAlerts(limits=AlertLimits(), waiting_min=1, waiting_max=1, watched_since=NOW)
    changes = alert_changes(state, configured, seen, NOW + at_s)
    return [
        (str(each.__struct_config__.tag), each.why) for each in changes
        if isinstance(each, f.AlertFact) and each.alert == "handshake_failed"
    ]  # fmt: skip


def test_the_alert_needs_a_handshake_that_failed_a_minute_after_the_first_one() -> None:
    """An owner that could make none for a while has seen nothing of the receiver."""
    assert judged(after(), 999) == []
    assert judged(after(failed(0)), 999) == []
    assert judged(after(failed(0), failed(59)), 999) == []
    assert judged(after(failed(0), failed(60)), 61) == [("alert_raised", "no proof for 1m; HTTP 404")]


def test_a_failure_of_ours_raises_no_alert() -> None:
    assert judged(after(failed(0, ours=True), failed(60, ours=True)), 61) == []
    assert judged(after(failed(0), failed(60, ours=True)), 61) == []


@pytest.mark.parametrize("held", [{"paused": True}, {"disabled": "gone"}])
def test_a_receiver_that_is_held_back_raises_no_alert(held: dict[str, Any]) -> None:
    assert judged(after(failed(0), failed(60), **held), 61) == []


def test_the_alert_is_over_with_the_proof_or_the_need_for_it() -> None:
    raised = (Alert(kind="handshake_failed", raised_at=NOW, raised=True),)
    failing = after(failed(0), failed(60), alerts=raised)
    assert judged(failing, 99) == []
    proved = evolve(failing, f.HandshakeSucceeded(receiver=RECEIVER, at=NOW + 98, key=KEY))
    assert judged(proved, 99) == [("alert_recovered", "it proved itself")]
    assert judged(failing, 99, policy()) == [("alert_recovered", "it needs no handshake")]
    elsewhere = policy(handshake="cloudevents", url="https://example.com/other")
    assert judged(failing, 99, elsewhere) == [("alert_recovered", "its URL or its secrets were changed")]
