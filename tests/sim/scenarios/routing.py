"""Routing: each subscriber gets each event once, from any router, whatever that router has heard."""

from collections.abc import Callable

import msgspec

from actors.machine.bucket import CLOCK_SKEW_S
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import Names
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.stage import URL, R, Stage, old, staged
from tests.sim.world.process import Process

OTHER = "acme.r1"


def events_are_routed_again_beyond_the_window() -> None:
    """Copies for another never arrive, and their router dies: more is routed again than a window holds."""
    with staged(Plan(receivers=(R, OTHER))) as stage:
        stage.put(dedup_window=16)
        stage.put(OTHER)
        first = _without_copies(stage)
        stage.announce(*old(40))
        stage.until(lambda: stage.checkers.starts == 40)
        first.kill()
        stage.node()
        stage.settle()


def one_of_two_copies_is_stored() -> None:
    """An event for two whose one copy is stored and the other is not; then its router dies."""
    with staged(Plan(receivers=(R, OTHER))) as stage:
        stage.put()
        stage.put(OTHER)
        first = _without_copies(stage)
        stage.announce("one")
        stage.until(lambda: stage.checkers.starts == 1)
        stage.wait(2.0)
        first.kill()
        stage.node()
        stage.settle()


def _without_copies(stage: Stage) -> Process:
    """A node, no copy of which for the other receiver arrives."""
    first = stage.node()
    stage.owner()
    stage.wait(2.0)

    def judge(message: Message, deal: Callable[[], None]) -> None:
        if not (message.subject == stage.run.names.publish_to(OTHER) and first.alive):
            deal()

    stage.gate(judge)
    return first


def last_event_is_routed_and_nothing_else_happens() -> None:
    """An event has no receiver, so no fact of any shard follows; then the stream of events may be purged."""
    with staged() as stage:
        stage.put(events=[])
        stage.node()
        stage.owner()
        stage.wait(2.0)
        stage.announce("one")
        stage.wait(3.0)
        routed = stage.checkers.journals[0].routed
        stage.expect(routed == 1, f"the journal says that {routed} is routed")
        stage.settle()


def replicas_do_not_show_a_subscription() -> None:
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


def event_is_older_than_its_receiver() -> None:
    """No node runs when an event is stored; before one does, its receiver is removed and put, then edited."""
    with staged() as stage:
        stage.do(_put)
        stage.announce("one")
        stage.wait(2 * CLOCK_SKEW_S)
        stage.do(_remove)
        stage.do(_put)
        stage.wait(2 * CLOCK_SKEW_S)
        stage.do(_put)
        stage.node()
        stage.settle()
        stage.expect(stage.checkers.starts == 0, "an event of before was posted")
        stage.announce("two")
        stage.settle()
        stage.expect(stage.checkers.starts == 1, "the receiver that was put anew gets nothing")


def clock_of_the_server_is_set_back() -> None:
    """A receiver is put, and an event is stored two seconds later, at a time a minute before."""
    with staged() as stage:
        stage.node()
        stage.owner()
        stage.do(_put)
        stage.wait(2.0)
        stage.set_server_clock(-60.0)
        stage.announce("one")
        stage.settle()
        stage.expect(stage.checkers.starts == 1, "the receiver gets nothing")


async def _put(js: JetStream) -> None:
    raw = msgspec.json.encode({"url": URL})
    assert isinstance(await StoredConfigurations(js, Names()).put(R, raw), Stored)


async def _remove(js: JetStream) -> None:
    assert isinstance(await StoredConfigurations(js, Names()).delete(R), Stored)
