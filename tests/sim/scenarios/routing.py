"""Whether each subscriber is given each event once, whoever routes it and whatever he has heard."""

from collections.abc import Callable

from streams.nats.wire import Message
from streams.reading import acks
from tests.sim.plan import Plan
from tests.sim.stage import R, old, staged

OTHER = "acme.r1"


def routed_again_beyond_the_window() -> None:
    """A node dies whose acks have not arrived: its successor routes more events again than a window holds."""
    with staged() as stage:
        stage.put(dedup_window=16)
        first = stage.node()
        stage.owner()

        def judge(message: Message, deal: Callable[[], None]) -> None:
            if not (message.subject.startswith("$JS.ACK.ANGARIUM_EVENTS.") and first.alive):
                deal()

        stage.gate(judge)
        stage.announce(*old(40))
        stage.until(lambda: stage.checkers.starts == 40)
        first.kill()
        stage.node()
        stage.settle()


def one_of_two_copies_is_stored() -> None:
    """Of an event for two one copy is stored and the other is not; then its router dies."""
    with staged(Plan(receivers=(R, OTHER))) as stage:
        stage.put()
        stage.put(OTHER)
        first = stage.node()
        stage.owner()
        stage.wait(2.0)

        def judge(message: Message, deal: Callable[[], None]) -> None:
            if not (message.subject == stage.run.names.publish_to(OTHER) and first.alive):
                deal()

        stage.gate(judge)
        stage.announce("one")
        stage.until(lambda: stage.checkers.starts == 1)
        stage.wait(acks.GATHER_ACKS_S + 1.0)
        first.kill()
        stage.node()
        stage.settle()


def subscription_that_no_replica_shows() -> None:
    """An event is published long after a subscription to it that the router has not heard of."""
    with staged(Plan(clustered=True)) as stage:
        stage.put(events=[])
        stage.node()
        stage.owner()
        stage.wait(2.0)
        stage.let_replicas_stand(stage.run.names.receivers)
        stage.put(events=[">"])
        stage.wait(2.0)
        stage.announce("one")
        stage.wait(2.0)
        stage.let_replicas_go_on(stage.run.names.receivers)
        stage.settle()
