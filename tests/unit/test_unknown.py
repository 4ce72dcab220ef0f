"""Events whose receiver is unknown, not valid, or gone: nothing is decided without a word from the leader."""

import pytest

from actors import facts as f
from actors.ports import Invalid
from tests.unit.machine import answer, policy
from tests.unit.shard_world import RECEIVER, ShardWorld, in_virtual_time, strict


@in_virtual_time
async def test_an_unknown_receiver_gets_dead_letters_without_numbers() -> None:
    world = ShardWorld()
    world.publish(200)
    await world.until(lambda: len(world.graveyard.buried) == 200)
    await world.until(lambda: world.host.bindings.bound == 0)
    assert {(each.reason, each.sequence) for each in world.graveyard.buried} == {("unknown_receiver", None)}
    assert world.journal.of(f.Removed, f.Opened) == []
    world.put(policy())
    world.publish()
    await world.until_settled(1)
    assert (world.sender.positions, world.sender.numbers) == ([201], [1])


@in_virtual_time
async def test_a_receiver_that_is_put_while_the_question_is_under_way_loses_nothing() -> None:
    world = ShardWorld()
    world.publish()
    await world.until(lambda: world.policies.asked == 1)
    world.policies.leader[RECEIVER] = policy()
    world.publish()
    await world.until_settled(1)
    assert [each.position for each in world.graveyard.buried] == [1]
    assert world.sender.positions == [2]


@in_virtual_time
async def test_while_the_leader_does_not_answer_events_wait() -> None:
    world = ShardWorld()
    world.policies.unavailable = True
    world.publish(3)
    await world.pass_time(10)
    assert (world.graveyard.buried, world.host.bindings.bound) == ([], 0)
    world.policies.leader[RECEIVER] = policy()
    world.policies.unavailable = False
    await world.until_settled(3)


@in_virtual_time
async def test_events_of_a_receiver_that_never_had_a_valid_configuration_wait() -> None:
    world = ShardWorld()
    world.policies.leader[RECEIVER] = Invalid(problems=("url: missing",))
    world.publish(100)
    await world.pass_time(600)
    assert (world.sender.made, world.graveyard.buried, world.host.bindings.bound) == ([], [], 0)
    assert world.policies.asked == 1
    world.put(policy())
    await world.until_settled(100)
    assert world.sender.numbers == list(range(1, 101))


# ---- removal


@in_virtual_time
async def test_removal_discards_what_waits_and_a_receiver_put_again_never_gets_it() -> None:
    world = strict()
    world.sender.answers(200, answer(429, retry_after="60"))
    world.publish(100)
    await world.until(lambda: world.state.parked and bool(world.state.open))
    world.put(None)
    await world.until(lambda: bool(world.journal.of(f.Removed)))
    (removed,) = world.journal.of(f.Removed)
    assert (removed.discarded, removed.next_sequence) == (99, 101)
    world.put(policy())
    world.publish(2)
    await world.until_settled(3)
    assert world.sender.numbers == [1, 2, 101, 102]
    assert world.host.bindings.bound == 0


@in_virtual_time
async def test_removal_waits_for_the_attempt_in_flight() -> None:
    world = strict()
    world.sender.latency_s = 1
    world.publish(3)
    await world.until(lambda: bool(world.sender.made))
    world.put(None)
    await world.until(lambda: bool(world.journal.of(f.Removed)))
    assert world.journal.of(f.Delivered, f.Removed)[0].events[0].sequence == 1
    assert world.journal.of(f.Removed)[0].discarded == 2
    assert len(world.sender.made) == 1


@pytest.mark.parametrize("parked", [False, True])
@in_virtual_time
async def test_what_comes_while_a_removal_is_under_way_is_not_lost(parked: bool) -> None:
    world = strict(paused=parked)
    world.publish(3)
    await world.until(lambda: world.state.parked if parked else len(world.acked) == 3)
    world.put(None)
    await world.until(lambda: world.policies.asked == 1)
    world.publish()
    world.policies.leader[RECEIVER] = policy()
    await world.until(lambda: bool(world.journal.of(f.Removed)))
    await world.until(lambda: 4 in world.sender.positions)
    assert world.graveyard.buried == []


@in_virtual_time
async def test_a_receiver_that_is_there_after_all_is_not_removed() -> None:
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.host.configured(RECEIVER, None)
    world.publish()
    await world.until_settled(2)
    assert world.journal.of(f.Removed) == []
