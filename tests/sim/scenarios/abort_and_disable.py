"""Answers that steer: events that a receiver aborts, and a receiver that wants nothing more."""

from actors.machine.outcome import ABORT, DISABLE
from tests.sim.stage import old, staged
from tests.sim.world.receivers import Manner

PATIENT = {"base_s": 0.5, "cap_s": 1.0, "rejected_attempts": 100}


def events_are_aborted() -> None:
    """A receiver errs, and aborts each event: each has one attempt, and they become dead letters at once."""
    with staged() as stage:
        stage.put(retry=PATIENT)
        stage.node()
        stage.owner()
        stage.receiver_is(Manner.ERRS)
        stage.receiver_says(ABORT)
        stage.publish(*old(5))
        stage.wait(3.0)
        stage.expect(stage.checkers.starts == 5, "5 events should have had an attempt each")
        stage.receivers_are_good()
        stage.settle()


def receiver_errs_and_asks_for_nothing_more() -> None:
    """A receiver errs and wants nothing more; it gets nothing until it is resumed, even by another owner."""
    with staged() as stage:
        stage.put(retry=PATIENT)
        first = stage.node()
        stage.owner()
        stage.receiver_is(Manner.ERRS)
        stage.receiver_says(DISABLE)
        stage.publish(*old(5))
        stage.wait(5.0)
        first.kill()
        stage.receivers_are_good()
        stage.node()
        stage.owner()
        stage.wait(20.0)
        stage.expect(not stage.delivered(), "nothing should be sent to a receiver that wants nothing")
        stage.ask("resume")
        stage.settle()


def receiver_takes_an_event_and_asks_for_nothing_more() -> None:
    """The event is delivered, and is not sent again; the others wait until the receiver is resumed."""
    with staged() as stage:
        stage.put(retry=PATIENT)
        stage.node()
        stage.owner()
        stage.receiver_says(DISABLE)
        stage.publish(*old(5))
        stage.wait(5.0)
        stage.expect(len(stage.delivered()) == 1, "one event should be delivered")
        stage.receivers_are_good()
        stage.ask("resume")
        stage.settle()
