"""An operator accepts that a stream lost its tail, with interruptions and other processes."""

from functools import partial
from unittest.mock import patch

from streams.nats.jetstream import JetStream
from streams.repair import acceptance
from tests.sim.checks.lost_tail import AfterLostTail
from tests.sim.plan import Plan
from tests.sim.scenarios.backlogs import put_again
from tests.sim.scenarios.recovery.tails import AGAIN_S, BEFORE, CHECKPOINT_S, KEPT, lose
from tests.sim.stage import Stage, old, staged
from tests.sim.world.process import Process
from tests.sim.world.world import RunFailed

Numbers = dict[tuple[str, int], str]
"""The event that each number of a receiver names."""


def accept(stage: Stage, after: AfterLostTail, numbers: Numbers, *, deleted: str = "") -> None:
    """Expect that what was published after the loss is delivered, and no number names two events."""
    new = {f"new{number}" for number in range(BEFORE)} - {deleted}
    stage.wait(AGAIN_S + 20.0)
    stage.expect(after.owned and not after.refused, f"still refused: {after.refused}")
    missing = new - {each.id for each in after.posts}
    stage.expect(not missing, f"never attempted: {sorted(missing)}")
    for post in after.posts:
        if post.sequence is not None:
            named = numbers.setdefault((post.receiver, post.sequence), post.id)
            stage.expect(named == post.id, f"number {post.sequence} names {named} and {post.id}")


def given(stage: Stage) -> Numbers:
    """Which event was given which number until now."""
    named, event = stage.checkers.numbers.named.items(), stage.checkers.deliveries.event
    return {number: event(position).id for number, position in named}


def _accepted(stream: str, *, node_dies: bool, dies_at: tuple[int, ...] = ()) -> None:
    with staged(Plan(ttl_s=2.0)) as stage:
        stage.put()
        stage.put("acme.r1", events=[])
        name = getattr(stage.run.names, stream)
        after = lose(stage, name, node_dies=node_dies)
        after.expect_refused(name)
        numbers = given(stage)
        ended = False
        for number in (*dies_at, 0):
            ended = ended or after.repair(number)
            stage.wait(12.0)
        stage.expect(ended, "the repair did not end")
        accept(stage, after, numbers)


def lost_deliveries_are_accepted() -> None:
    """Actors go back to what is left, and get what came since, under numbers above all others."""
    _accepted("deliveries", node_dies=False)
    _accepted("deliveries", node_dies=True)


def lost_events_are_accepted() -> None:
    """Positions are given again, and sources are not."""
    _accepted("events", node_dies=False)
    _accepted("events", node_dies=True)


CUT_OFF_AT = [tuple(range(first, first + 8, 3)) for first in range(4, 60, 8)]
"""Requests of a repair at which it is cut off, one after the other, and then it is run again."""


def repair_is_cut_off() -> None:
    """At some requests, for either stream at others."""
    for dies_at in CUT_OFF_AT[::3]:
        _accepted("deliveries", node_dies=True, dies_at=dies_at)
    for dies_at in CUT_OFF_AT[1::3]:
        _accepted("events", node_dies=True, dies_at=dies_at)


def repair_is_cut_off_anywhere() -> None:
    for dies_at in CUT_OFF_AT:
        for name in ("deliveries", "events"):
            _accepted(name, node_dies=True, dies_at=dies_at)


def tail_is_lost_after_another_node_had_the_shard() -> None:
    """The owner after the one that vanished took nothing up, and released the shard in order."""
    with staged(Plan(ttl_s=2.0)) as stage:
        stage.put()
        first = stage.node()
        owner = stage.owner()
        stage.publish(*old(20))
        stage.until(lambda: len(stage.delivered()) == 20)
        stage.wait(8.0)
        stage.lose_facts(b'"delivered"', owner)
        stage.publish(*[f"lost{number}" for number in range(20)])
        stage.wait(0.8)
        first.kill()
        numbers = given(stage)
        stage.expect(len(numbers) > KEPT, f"nothing was posted unrecorded: {numbers}")
        stage.put(paused=True)
        second = stage.node()
        stage.owner()
        stage.wait(12.0)
        stage.stop(second)
        after = AfterLostTail(stage)
        after.lose_tail(stage.run.names.deliveries, KEPT)
        stage.publish(*[f"new{number}" for number in range(BEFORE)])
        stage.put()
        stage.expect(after.repair(), "the repair did not end")
        stage.node()
        accept(stage, after, numbers)


def posted_events_are_lost() -> None:
    """An owner vanished with attempts that are on no record, and the events that they were of are lost."""
    with staged(Plan(ttl_s=2.0)) as stage:
        stage.put()
        first = stage.node()
        owner = stage.owner()
        stage.publish(*old(KEPT + 5))
        stage.until(lambda: len(stage.delivered()) == KEPT + 5)
        stage.lose_facts(b'"delivered"', owner)
        stage.publish(*[f"lost{number}" for number in range(20)])
        stage.wait(0.8)
        first.kill()
        numbers = given(stage)
        stage.expect(len(numbers) > KEPT + 10, f"nothing was posted unrecorded: {numbers}")
        after = AfterLostTail(stage)
        after.lose_tail(stage.run.names.deliveries, KEPT)
        stage.publish(*[f"new{number}" for number in range(BEFORE)])
        stage.node()
        stage.wait(5.0)
        stage.expect(after.repair(), "the repair did not end")
        accept(stage, after, numbers)


# ---- no node has looked yet, so that nothing is recorded


RECEIVERS = ("acme.r0", "acme.r1", "acme.r2")


def _lost_unseen(stage: Stage) -> AfterLostTail:
    """Three receivers have got all; no node lives when the tail is lost. One had vanished before."""
    for receiver in RECEIVERS:
        stage.put(receiver)
    first = stage.node()
    stage.owner()
    _publish_alternately(stage, "old")
    stage.until(
        lambda: all(len(stage.delivered(receiver)) == BEFORE // len(RECEIVERS) for receiver in RECEIVERS)
    )
    stage.wait(1.0)
    first.kill()
    second = stage.node()
    stage.owner()
    stage.wait(CHECKPOINT_S)
    stage.stop(second)
    after = AfterLostTail(stage)
    after.lose_tail(stage.run.names.deliveries, KEPT)
    return after


def _publish_alternately(stage: Stage, name: str) -> None:
    for number in range(BEFORE):
        stage.publish(f"{name}{number}", receiver=RECEIVERS[number % len(RECEIVERS)])


def repair_is_cut_off_between_two_flushes() -> None:
    """Some actors are brought back, and others are not; no node has looked."""
    with (
        staged(Plan(ttl_s=2.0, receivers=RECEIVERS)) as stage,
        patch.object(acceptance, "FLUSH_FACTS_MAX", 1),
    ):
        after, numbers = _lost_unseen(stage), given(stage)
        before = after.flushes[-1]
        stage.expect(not after.repair(3, stage.run.names.journal_of(0)), "the repair was not cut off")
        last = after.flushes[-1]
        stage.expect(len(last.facts) == 1 and last.epoch > before.epoch, f"not in the middle: {last}")
        stage.expect(last.unclean == before.unclean, f"{before.unclean} is forgotten: {last.unclean}")
        _publish_alternately(stage, "new")
        stage.wait(12.0)
        stage.expect(after.repair(), "the repair did not end")
        stage.node()
        accept(stage, after, numbers)


def nodes_come_while_it_is_repaired() -> None:
    """A repair that takes long; to nodes it seems dead, since it shows no heartbeat."""
    with (
        staged(Plan(ttl_s=2.0, receivers=RECEIVERS)) as stage,
        patch.object(acceptance, "FLUSH_FACTS_MAX", 1),
    ):
        after, numbers = _lost_unseen(stage), given(stage)
        command = after.begin_repair(3, Process.freeze, stage.run.names.journal_of(0))
        stage.until(lambda: command.frozen)
        _publish_alternately(stage, "new")
        stage.node()
        stage.wait(15.0)
        command.wake()
        stage.until(lambda: not command.alive)
        stage.expect(command in after.repaired, "the repair was overtaken")
        accept(stage, after, numbers)


def two_repairs_at_once() -> None:
    """The second one takes the first for dead. Wherever that stood, it does nothing more."""
    for at in range(3, 45, 13):
        _two_repairs(at)


def _two_repairs(at: int) -> None:
    with (
        staged(Plan(ttl_s=2.0, receivers=RECEIVERS)) as stage,
        patch.object(acceptance, "FLUSH_FACTS_MAX", 1),
    ):
        after, numbers = _lost_unseen(stage), given(stage)
        _publish_alternately(stage, "new")
        first = after.begin_repair(at, Process.freeze)
        stage.until(lambda: first.frozen)
        stage.expect(after.repair(), "the second repair did not end")
        stage.node()
        stage.owner()
        first.wake()
        stage.until(lambda: not first.alive)
        stage.expect(first not in after.repaired, "both ended")
        accept(stage, after, numbers)


def the_owner_wakes_during_a_repair() -> None:
    """The shard's owner was suspended when the tail was lost, and wakes."""
    ended_at_once = {_owner_wakes(at) for at in range(1, 60, 11)}
    if ended_at_once != {True, False}:
        raise RunFailed(f"it always went the same way: {ended_at_once}")


def _owner_wakes(at: int) -> bool:
    """True if the repair ended in spite of the owner."""
    with staged(Plan(ttl_s=2.0)) as stage:
        stage.put()
        owner = stage.node()
        stage.owner()
        stage.publish(*old(BEFORE))
        stage.until(lambda: len(stage.delivered()) == BEFORE)
        stage.wait(3.0)
        after, numbers = AfterLostTail(stage), given(stage)
        owner.freeze()
        stage.wait(at % 5)
        stage.run.network.restart_server(0.5)
        after.lose_tail(stage.run.names.deliveries, KEPT)
        stage.wait(0.5)
        stage.publish(*[f"new{number}" for number in range(BEFORE)])
        command = after.begin_repair(at, lambda _: owner.wake())
        stage.until(lambda: not command.alive)
        owner.wake()
        stage.wait(12.0)
        ended = command in after.repaired
        stage.expect(ended or after.repair(), "the repair did not end")
        accept(stage, after, numbers)
        return ended


# ---- what else may have become of it


def the_place_of_a_lost_message_is_deleted() -> None:
    """By hand, after it was refused; those around it are of the new tail all the same."""
    with staged(Plan(ttl_s=2.0)) as stage:
        deliveries = stage.run.names.deliveries
        after, numbers = lose(stage, deliveries, node_dies=True), given(stage)
        after.expect_refused(deliveries)
        stage.do(partial(_delete, deliveries, BEFORE))
        stage.wait(AGAIN_S)
        after.expect_refused(deliveries)
        stage.expect(after.repair(), "the repair did not end")
        accept(stage, after, numbers, deleted=f"new{BEFORE - KEPT - 1}")


async def _delete(stream: str, position: int, js: JetStream) -> None:
    await js.delete(stream, position)


def configurations_are_recreated() -> None:
    """Their revisions begin again below those of the removals that were obeyed."""
    with staged(Plan(ttl_s=2.0)) as stage:
        stage.put()
        first = stage.node()
        stage.owner()
        for _ in range(5):
            put_again(stage)
        stage.publish("old")
        stage.until(lambda: stage.delivered() == {1})
        stage.wait(3.0)
        stage.stop(first)
        after = AfterLostTail(stage)
        after.recreate(stage.run.names.receivers)
        stage.put(paused=True)
        stage.expect(after.repair(), "the repair did not end")
        stage.node()
        stage.owner()
        stage.publish(*[f"waiting{number}" for number in range(5)])
        stage.wait(3.0)
        release = stage.hold_reads(stage.run.names.receivers)
        put_again(stage)
        release()
        stage.wait(2.0)
        stage.publish("new")
        stage.wait(10.0)
        stage.expect([each.id for each in after.posts] == ["new"], f"posted: {after.posts}")
