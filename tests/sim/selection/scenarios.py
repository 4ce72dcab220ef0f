"""Regions and filters that change, and selections that take several turns."""

from tests.sim.plan import Plan
from tests.sim.stage import R, Stage, staged
from tests.sim.world.process import Process

OTHER = "acme.r1"


def a_filter_changes() -> None:
    """A receiver gets another filter, and two seconds later events that one of the two lets through."""
    with staged() as stage:
        stage.put(filter="@ == `1`")
        _node(stage)
        stage.announce("1")
        stage.wait(1.0)
        stage.put(filter="@ == `2`")
        stage.wait(2.0)
        stage.announce("2", "3")
        stage.settle()
        stage.expect(stage.checkers.starts == 2, "the receiver gets what it does not want, or too little")


def a_selection_takes_several_turns() -> None:
    """Events wait for a router whose tenant may evaluate one filter in a turn; the first event needs two."""
    with staged(Plan(receivers=(R, OTHER), filter_steps=1)) as stage:
        stage.put(filter="@ != `4`")
        stage.put(OTHER, filter="@ == `2`", region=["us"])
        stage.announce("1")
        stage.announce("2", "3", region="eu")
        _node(stage)
        stage.settle()
        stage.expect(stage.checkers.starts == 3, "the receivers get what they do not want, or too little")


def an_event_waits_as_the_region_changes() -> None:
    """A copy waits for a paused receiver, which is put into another region then."""
    with staged() as stage:
        stage.put(paused=True)
        _node(stage)
        stage.announce("1", region="eu")
        stage.wait(2.0)
        stage.put(region=["us"])
        stage.settle()
        stage.expect(stage.checkers.starts == 0, "it is sent out of its region")


def a_direct_send_belongs_to_another_region() -> None:
    """Two direct sends come, the first one from another region; it gets a number all the same."""
    with staged() as stage:
        stage.put(region=["us"])
        _node(stage)
        stage.publish("one", region="eu")
        stage.publish("two", region="us")
        stage.settle()
        stage.expect(stage.checkers.starts == 1, "both are sent, or none")


def the_region_goes_after_an_event_was_discarded() -> None:
    """An owner discards an event, posts the next one, and dies; then the receiver takes all regions."""
    with staged() as stage:
        stage.put(region=["us"])
        first = _node(stage)
        stage.lose_facts(b'"delivered"', stage.owner())
        stage.publish("one", region="eu")
        stage.publish("two")
        stage.wait(1.0)
        stage.expect(stage.checkers.starts == 1, "the second event is not posted, or not alone")
        first.kill()
        stage.put()
        stage.node()
        stage.settle()


def _node(stage: Stage) -> Process:
    """A node that owns the shard and has routed for a while."""
    node = stage.node()
    stage.owner()
    stage.wait(2.0)
    return node


ALL = [
    a_filter_changes, a_selection_takes_several_turns, an_event_waits_as_the_region_changes,
    a_direct_send_belongs_to_another_region, the_region_goes_after_an_event_was_discarded,
]  # fmt: skip
