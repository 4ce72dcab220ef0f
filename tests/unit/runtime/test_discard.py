"""Discarded events count as numbered: their ids enter the window, and no later source is below theirs."""

import asyncio

import msgspec
from msgspec.structs import replace

from actors.ids import KEY_BYTES, dedup_key
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.numbering import Frontier, advance, is_duplicate, with_number
from actors.runtime.discard import READ_EVENTS_MAX
from actors.runtime.host import PASSIVATE_AFTER_S, SWEEP_EVERY_S
from actors.runtime.operator_actions.forget import forget
from actors.runtime.operator_actions.skip import skip
from tests.unit.worlds.shard import RECEIVER, ShardWorld, strict
from tests.unit.worlds.values import policy
from tests.unit.worlds.virtual_time import in_virtual_time


async def parked(world: ShardWorld) -> None:
    await world.until(lambda: world.state.parked and not world.host.shard_unacked.unacked_count)


def as_numbered(world: ShardWorld, size: int) -> Frontier:
    """The frontier if every event had been numbered."""
    frontier = Frontier(size=size)
    for _, event in world.stream.messages:
        if not is_duplicate(frontier, event):
            frontier = advance(frontier, with_number(event, frontier.sequence + 1))
    return frontier


@in_virtual_time
async def test_the_frontier_is_as_if_all_had_been_numbered() -> None:
    world = strict(paused=True, dedup_window=16)
    for position in range(1, 60):
        world.publish(name=f"e{position % 23}", source=(0, position, max(1, position - 3))[position % 3])
    await parked(world)
    await forget(world.actor)
    assert world.state.frontier == replace(as_numbered(world, 16), position=59)
    assert world.journal.folded[RECEIVER] == world.state


@in_virtual_time
async def test_only_the_last_of_very_many_events_are_read() -> None:
    world = strict(paused=True, dedup_window=64)
    world.publish(20_000)
    await parked(world)
    read = world.stream.reads
    assert await forget(world.actor) == 20_000
    assert world.stream.reads - read < 100
    window, expected = world.state.frontier.window, as_numbered(world, 64).window
    assert window == expected
    assert len(window) == 64 * KEY_BYTES


@in_virtual_time
async def test_a_window_is_kept_where_few_different_ids_are_discarded() -> None:
    world = strict(dedup_window=16)
    world.publish(4)
    await world.until_settled(4)
    world.put(policy(paused=True, dedup_window=16))
    world.publish(2 * READ_EVENTS_MAX, name="same")
    await parked(world)
    await forget(world.actor)
    ids = ("e1", "e2", "e3", "e4", "same")
    assert world.state.frontier.window == b"".join(dedup_key(each, "") for each in ids)


@in_virtual_time
async def test_a_window_that_grows_meanwhile_holds_the_last_ids_and_none_from_before_them() -> None:
    """Most of the discarded events came under the narrow window, which does not hold them."""
    world = strict(dedup_window=16)
    world.publish(16)
    await world.until_settled(16)
    world.put(policy(paused=True, dedup_window=16))
    world.publish(60)
    await parked(world)
    world.put(policy(paused=True, dedup_window=64))
    world.publish(9)
    await world.pass_time(1)
    await forget(world.actor)
    assert world.state.frontier.window == b"".join(event.key for _, event in world.stream.messages[-64:])


@in_virtual_time
async def test_the_largest_fact_is_no_larger_than_the_snapshot_of_its_receiver() -> None:
    world = strict(paused=True, dedup_window=4096)
    world.publish(9000)
    await parked(world)
    await forget(world.actor)
    (forgot,) = world.journal.of(f.Forgot)
    assert len(forgot.keys) == 4096 * KEY_BYTES
    assert len(msgspec.json.encode(forgot)) < 45_000
    assert len(msgspec.json.encode(forgot)) < len(msgspec.json.encode(world.state))


@in_virtual_time
async def test_a_removal_awaits_an_attempt_that_began_while_it_was_asked_for() -> None:
    """The leader says that the receiver does not exist, and an older configuration is read only then."""
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.sender.latency_s = 1
    given = world.policies.known.pop(RECEIVER)
    world.policies.leader.pop(RECEIVER)
    world.host.configuration_changed(RECEIVER, None)
    await world.until(lambda: world.policies.asked == 1)
    world.host.configuration_changed(RECEIVER, given)
    world.publish()
    await world.until(lambda: bool(world.journal.of(f.Removed)))
    delivered = [each.events[0].sequence for each in world.journal.of(f.Delivered)]
    assert (delivered, world.journal.of(f.Removed)[0].discarded) == ([1, 2], 0)


@in_virtual_time
async def test_an_actor_that_stands_still_stays_in_memory() -> None:
    """Otherwise a slow stream would let it leave, and a second actor begin with the older state."""
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.stream.delay_s = PASSIVATE_AFTER_S
    world.store()
    actor = world.actor
    asked = asyncio.ensure_future(forget(actor))
    await world.pass_time(PASSIVATE_AFTER_S + 2 * SWEEP_EVERY_S)
    world.host.unsaved.take()
    world.host.snapshots_written()
    await asked
    assert world.actor is actor


@in_virtual_time
async def test_an_event_that_is_skipped_meanwhile_is_not_discarded_as_well() -> None:
    world = strict(paused=True)
    world.publish(3)
    await parked(world)
    discarded, skipped = await asyncio.gather(forget(world.actor), skip(world.actor))
    assert (discarded, skipped.sequence, world.state.frontier.sequence) == (2, 1, 3)


@in_virtual_time
async def test_a_removal_that_comes_with_the_next_configuration_is_obeyed() -> None:
    """The bucket keeps only the last value of a key, so a late reader sees both at once."""
    world = strict(paused=True)
    world.publish(3)
    await parked(world)
    world.policies.remove(RECEIVER, world.clock.now())
    world.policies.known[RECEIVER] = world.policies.leader[RECEIVER] = policy()
    world.host.configuration_changed(RECEIVER, policy())
    await world.until(lambda: bool(world.journal.of(f.Removed)))
    world.publish()
    await world.until_settled(1)
    assert (world.sender.numbers, world.state.counters.discarded) == ([4], 3)


@in_virtual_time
async def test_an_old_removal_is_not_a_bound_where_the_leader_says_that_it_is_gone() -> None:
    """The node has heard of the one before, and not yet of this one."""
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.put(None)
    await world.until(lambda: bool(world.journal.of(f.Removed)))
    world.put(policy(paused=True))
    world.publish(2)
    await parked(world)
    del world.policies.known[RECEIVER], world.policies.leader[RECEIVER]
    world.host.configuration_changed(RECEIVER, None)
    await world.until(lambda: len(world.journal.of(f.Removed)) == 2)
    assert [each.discarded for each in world.journal.of(f.Removed)] == [0, 2]


@in_virtual_time
async def test_events_after_discarded_ones_stay_in_the_stream_once_that_is_recorded() -> None:
    world = strict(paused=True)
    world.publish(3)
    await parked(world)
    world.put(policy())
    await world.until_settled(3)
    await world.until(lambda: not world.state.parked)
    world.journal.held = True
    world.actor.pending.discard(c.ForgetBacklog(1, 0))
    assert world.state.parked
    assert world.actor.pending.cursor.parked_index == world.journal.index


@in_virtual_time
async def test_numbers_left_out_after_a_crash_are_not_discarded_events() -> None:
    """The owner that vanished may have numbered events of the receiver that are gone; none was found."""
    world = strict()
    world.publish(13, receiver="acme.other")
    world.stream.lost.add(13)
    world.crash()
    world.actor.wake()
    await world.until(lambda: world.state.opened)
    world.put(None)
    await world.until(lambda: bool(world.journal.of(f.Removed)))
    (removed,) = world.journal.of(f.Removed)
    assert (removed.discarded, removed.left_out, removed.next_sequence) == (0, 13, 14)
    assert world.state.counters.discarded == 0


@in_virtual_time
async def test_found_events_are_counted_apart_from_numbers_left_out() -> None:
    world = strict(paused=True)
    world.publish(10, receiver="acme.other")
    world.publish(3)
    world.crash()
    await parked(world)
    assert await forget(world.actor) == 3
    (forgot,) = world.journal.of(f.Forgot)
    assert (forgot.discarded, forgot.left_out, forgot.next_sequence) == (3, 10, 14)
