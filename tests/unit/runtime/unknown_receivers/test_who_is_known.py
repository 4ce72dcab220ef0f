"""Known receivers are never turned away; nor are events that waited here for a name that became known."""

import pytest

from actors.machine import facts as f
from tests.unit.worlds.shard import RECEIVER, ShardWorld, strict
from tests.unit.worlds.unknown import UNKNOWN, flood
from tests.unit.worlds.values import policy
from tests.unit.worlds.virtual_time import in_virtual_time


def wipe(world: ShardWorld) -> None:
    """No configuration is left, nor any trace of a removal."""
    world.policies.known.clear()
    world.policies.leader.clear()


async def delivered() -> ShardWorld:
    """A world whose receiver has a state and nothing to do."""
    world = strict()
    world.publish()
    await world.until_settled(1)
    wipe(world)
    return world


@in_virtual_time
async def test_a_receiver_that_the_journals_tail_names_is_known() -> None:
    world = await delivered()
    world.crash()
    assert RECEIVER not in world.host.actors
    assert world.host.knows(RECEIVER)
    assert not world.host.knows(UNKNOWN)


@in_virtual_time
async def test_a_receiver_whose_snapshot_is_being_written_is_known() -> None:
    world = await delivered()
    world.crash()
    world.host.unsaved.take()
    assert RECEIVER not in world.host.actors
    assert world.host.knows(RECEIVER)


@in_virtual_time
async def test_a_receiver_that_is_listed_as_parked_is_known() -> None:
    world = strict(paused=True)
    world.publish()
    await world.until(lambda: RECEIVER in world.host.parked)
    wipe(world)
    world.crash(snapshots=True)
    assert RECEIVER not in world.host.actors
    assert world.host.knows(RECEIVER)


@in_virtual_time
async def test_a_receiver_whose_snapshot_was_written_after_the_listing_is_known() -> None:
    world = strict()
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 1)
    world.publish()
    await world.until_settled(1)
    wipe(world)
    world.snapshots.held.update(world.host.unsaved.take())
    world.host.snapshots_written()
    await world.pass_time(70)
    assert not world.host.actors
    assert world.host.knows(RECEIVER)


@in_virtual_time
async def test_a_receiver_whose_first_facts_are_not_confirmed_yet_is_known() -> None:
    world = strict()
    world.journal.held = True
    world.publish()
    await world.pass_time(0.1)
    wipe(world)
    assert world.host.knows(RECEIVER)


@in_virtual_time
async def test_an_event_that_waited_here_is_acked_under_its_last_reply() -> None:
    world = strict()
    world.policies.unavailable = True
    world.publish(receiver=UNKNOWN)
    await world.pass_time(0.5)
    world.put(policy(), UNKNOWN)
    await world.until(lambda: world.acked == [1], within_s=5)


@pytest.mark.parametrize("in_memory", [False, True])
@in_virtual_time
async def test_events_that_waited_here_count_for_the_bound_of_the_backlog(in_memory: bool) -> None:
    world = strict()
    world.policies.unavailable = True
    if in_memory:
        await world.host.residents.when_loaded(UNKNOWN)
    world.publish(10, receiver=UNKNOWN)
    await world.pass_time(0.5)
    world.put(policy(paused=True, backlog_max=4), UNKNOWN)
    await world.until(lambda: len(world.dead_letters.buried) == 6)
    assert {each.reason for each in world.dead_letters.buried} == {"overflow"}


@in_virtual_time
async def test_an_actor_does_nothing_when_settled_events_are_found() -> None:
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 2)
    world.publish(50)
    await world.until_settled(51)
    before = len(world.journal.of(f.Parked))
    world.crash()
    await world.pass_time(3)
    assert world.stream.stretches == 1
    assert world.journal.of(f.Parked)[before:] == []
    assert len(world.sender.made) == 51
