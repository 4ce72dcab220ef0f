"""Relaxed order: how many attempts run at once, whatever happens to single events."""

from actors.machine.state import OPEN_MAX
from tests.sim.stage import old, staged
from tests.sim.world.receivers import POISON, Manner


def one_event_fails_for_long() -> None:
    """An event that is rejected time and again, while all others are delivered."""
    with staged() as stage:
        retry = {"base_s": 20.0, "cap_s": 20.0, "rejected_attempts": 3}
        stage.put(order="relaxed", concurrency=4, retry=retry)
        stage.node()
        stage.owner()
        stage.publish(POISON, *old(20))
        stage.wait(1.0)
        stage.expect(len(stage.delivered()) == 20, "20 events should not wait for one")
        stage.settle()


def all_events_fail_for_long() -> None:
    """More are rejected, and wait for their next attempts, than may be open."""
    with staged() as stage:
        stage.put(order="relaxed", concurrency=16, retry={"base_s": 20.0, "cap_s": 20.0})
        stage.node()
        stage.owner()
        stage.receiver_is(Manner.REJECTS)
        stage.publish(*old(OPEN_MAX + 50))
        stage.wait(4.0)
        stage.receivers_are_good()
        stage.settle()


def receiver_is_down() -> None:
    """A receiver that fails for a while, and comes back."""
    with staged() as stage:
        stage.put(order="relaxed", concurrency=8, retry={"base_s": 0.5, "cap_s": 1.0})
        stage.node()
        stage.owner()
        stage.receiver_is(Manner.HANGS)
        stage.publish(*old(40))
        stage.wait(90.0)
        stage.receivers_are_good()
        stage.settle()
