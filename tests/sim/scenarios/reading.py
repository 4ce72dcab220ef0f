"""Reading of a stream: every waiting message is read, from any replica and whatever was acked."""

from collections.abc import Callable
from unittest.mock import patch

from msgspec.structs import replace

from streams.installation import topology
from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.stage import old, staged


def last_ack_is_lost() -> None:
    """The consumer has handed out all that it may, everything is settled, and the ack of it never arrives."""
    with patch.object(topology, "MAX_ACK_PENDING", 8), staged() as stage:
        stage.put()
        stage.node()
        stage.owner()
        lost: list[str] = []

        def judge(message: Message, deal: Callable[[], None]) -> None:
            if message.subject.startswith("$JS.ACK.ANGARIUM_DELIVERIES.") and stage.world.now < until:
                lost.append(message.subject)
            else:
                deal()

        stage.wait(2.0)
        until = stage.world.now + 1.2
        stage.gate(judge)
        stage.publish(*old(8))
        stage.until(lambda: stage.world.now > until)
        stage.expect(bool(lost), "no ack was lost")
        stage.publish("one more")
        stage.wait(5.0)
        stage.expect(stage.checkers.starts == 9, "the consumer hands out nothing more")
        stage.settle()


def last_ack_of_the_events_is_lost() -> None:
    """The consumer of the events is full, and its last ack is lost."""
    with patch.object(topology, "MAX_ACK_PENDING", 8), staged() as stage:
        stage.put(events=[])
        stage.node()
        stage.owner()
        lost: list[str] = []

        def judge(message: Message, deal: Callable[[], None]) -> None:
            if message.subject.startswith("$JS.ACK.ANGARIUM_EVENTS.") and not lost:
                lost.append(message.subject)
            else:
                deal()

        stage.wait(2.0)
        stage.gate(judge)
        stage.announce(*old(8))
        stage.until(lambda: bool(lost))
        stage.announce("one more")
        stage.settle()


def last_message_is_lost() -> None:
    """The last message was handed out and never arrived: only a heartbeat tells."""
    with staged() as stage:
        stage.put()
        stage.node()
        stage.owner()
        stage.publish("one")
        stage.until(lambda: stage.checkers.starts == 1)
        network = stage.run.network
        network.begin(replace(network.faults, lost=1.0))
        stage.publish("two")
        network.begin(replace(network.faults, lost=0.0))
        stage.settle()


def consumer_vanishes_unnoticed() -> None:
    """The server in whose memory it was is gone, and says nothing; events are stored all the same."""
    with staged() as stage:
        stage.put()
        stage.node()
        stage.owner()
        stage.publish("one")
        stage.until(lambda: stage.checkers.starts == 1)
        for stream in (stage.run.names.deliveries, stage.run.names.events):
            of = stage.run.server.streams[stream]
            for consumer in list(of.consumers.values()):
                of.lose(consumer)
        stage.publish("two")
        stage.announce("three")
        stage.settle()


def lagging_replica_lacks_a_backlog() -> None:
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
