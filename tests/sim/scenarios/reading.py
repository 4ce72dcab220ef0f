"""Whether everything is read that waits in the stream, whatever was acked and whoever answers."""

from actors.memory.mailbox import MAILBOX_MAX
from streams.reading import acks
from tests.sim.plan import Plan
from tests.sim.stage import old, staged


def acked_beyond_the_floor() -> None:
    """While a receiver is parked, what comes is acked at once and on no record; then its node dies."""
    with staged() as stage:
        stage.put(paused=True)
        first = stage.node()
        stage.owner()
        stage.publish("one")
        stage.wait(3.0)
        stage.publish(*old(MAILBOX_MAX + 1))
        stage.wait(acks.GATHER_ACKS_S + 1.0)
        first.kill()
        stage.node()
        stage.owner()
        stage.put()
        stage.settle()


def backlog_of_a_lagging_replica() -> None:
    """A receiver's backlog is read from a replica that has not heard of it."""
    with staged(Plan(clustered=True)) as stage:
        stage.put(paused=True)
        stage.node()
        stage.owner()
        stage.let_replicas_stand(stage.run.names.deliveries)
        stage.publish("one", "two")
        stage.wait(3.0)
        stage.put()
        stage.settle()
