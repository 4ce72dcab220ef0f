"""The failing receivers of a shard: which are reported as offline, and when."""

from msgspec.structs import replace

from actors.machine import facts as f
from actors.machine.alerts.health_changes import HealthChange
from actors.machine.state import State
from actors.memory.failing_receivers import REPORTED_AT_ONCE_MAX, FailingReceivers

RECEIVER = "acme.billing"


def test_a_receiver_that_fails_again_and_again_is_remembered_once() -> None:
    watch = FailingReceivers(0.0, lambda _: None, list[HealthChange]().append)
    for number in range(1000):
        watch.note(State(receiver=RECEIVER, failing_since=float(number)))
        watch.note(State(receiver=RECEIVER))
        watch.note_configuration(RECEIVER)
    assert len(watch._due) == 1


def test_a_receiver_does_not_become_offline_after_an_attempt_that_failed_through_us() -> None:
    found = list[HealthChange]()
    watch = FailingReceivers(0.0, lambda _: None, found.append)
    own = f.AttemptFailed(receiver=RECEIVER, events=(), at=1.0, attempt=1)
    watch.note(State(receiver=RECEIVER, failing_since=1.0, last=own))
    ours = f.AttemptFailed(receiver=RECEIVER, events=(), at=101.0, attempt=2, ours=True)
    watch.note(State(receiver=RECEIVER, failing_since=1.0, last=ours))
    watch.report_due(1000.0)
    assert found == []
    watch.note(State(receiver=RECEIVER, failing_since=900.0, last=replace(own, at=1000.0)))
    watch.report_due(1199.0)
    assert found == []
    watch.report_due(1200.0)
    assert [each.why for each in found] == ["no success for 5m"]


def test_many_changes_that_are_due_at_once_are_reported_in_turns() -> None:
    found = list[HealthChange]()
    watch = FailingReceivers(0.0, lambda _: None, found.append)
    for number in range(REPORTED_AT_ONCE_MAX + 1):
        watch.note(State(receiver=f"acme.r{number}", failing_since=1.0))
    watch.report_due(1000.0)
    assert len(found) == REPORTED_AT_ONCE_MAX
    watch.report_due(1000.0)
    assert len(found) == REPORTED_AT_ONCE_MAX + 1
