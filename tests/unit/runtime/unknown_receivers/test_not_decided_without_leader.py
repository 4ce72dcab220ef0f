"""Events whose receiver is unknown, invalid or gone: nothing is decided without the leader's answer."""

from typing import Any

import pytest

from actors.configuration.policy import AGE_MAX_S
from actors.machine import facts as f
from actors.ports import Invalid
from tests.unit.worlds.shard import RECEIVER, ShardWorld, strict
from tests.unit.worlds.values import answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time


@in_virtual_time
async def test_an_unknown_receiver_gets_dead_letters_without_numbers() -> None:
    world = ShardWorld()
    world.publish(200)
    await world.until(lambda: len(world.dead_letters.buried) == 200)
    await world.until(lambda: world.host.shard_unacked.unacked_count == 0)
    assert {(each.reason, each.sequence) for each in world.dead_letters.buried} == {
        ("unknown_receiver", None)
    }
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
    assert [each.position for each in world.dead_letters.buried] == [1]
    assert world.sender.positions == [2]


@in_virtual_time
async def test_while_the_leader_does_not_answer_events_wait() -> None:
    world = ShardWorld()
    world.policies.unavailable = True
    world.publish(3)
    await world.pass_time(10)
    assert (world.dead_letters.buried, world.journal.of(f.TurnedAway)) == ([], [])
    world.policies.leader[RECEIVER] = policy()
    world.policies.unavailable = False
    await world.until_settled(3)


@in_virtual_time
async def test_events_of_a_receiver_that_never_had_a_valid_configuration_wait() -> None:
    world = ShardWorld()
    world.policies.leader[RECEIVER] = Invalid(problems=("url: missing",))
    world.publish(100)
    await world.pass_time(600)
    assert (world.sender.made, world.dead_letters.buried, world.host.shard_unacked.unacked_count) == (
        [],
        [],
        0,
    )
    assert world.policies.asked == 2
    world.put(policy())
    await world.until_settled(100)
    assert world.sender.numbers == list(range(1, 101))


@in_virtual_time
async def test_without_a_valid_configuration_they_wait_for_as_long_as_any_may() -> None:
    world = ShardWorld()
    world.policies.leader[RECEIVER] = Invalid(problems=("url: missing",))
    world.publish(100)
    await world.until(lambda: RECEIVER in world.host.parked and world.host.shard_unacked.unacked_count == 0)
    world.clock.ahead_s = AGE_MAX_S - 10
    world.crash()
    await world.pass_time(5)
    assert world.dead_letters.buried == []
    await world.until(lambda: len(world.dead_letters.buried) == 100)
    assert {(each.reason, each.sequence) for each in world.dead_letters.buried} == {("expired", None)}
    await world.until(lambda: not world.state.parked)
    world.put(policy())
    world.publish()
    await world.until_settled(1)
    assert (world.sender.positions, world.sender.numbers) == ([101], [1])


@in_virtual_time
async def test_an_event_that_had_its_number_when_the_configuration_broke_keeps_it() -> None:
    """The node has just started, and the bucket holds nothing valid any more."""
    world = strict(paused=True)
    world.publish(3)
    await world.until(lambda: world.state.parked)
    world.policies.known.clear()
    world.policies.leader[RECEIVER] = Invalid(problems=("url: missing",))
    world.clock.ahead_s = AGE_MAX_S
    world.crash()
    await world.until(lambda: len(world.dead_letters.buried) == 3)
    assert [(each.reason, each.sequence) for each in world.dead_letters.buried] == [
        ("expired", 1), ("expired", 2), ("expired", 3),
    ]  # fmt: skip


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
    assert world.host.shard_unacked.unacked_count == 0


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
async def test_an_event_that_comes_during_a_removal_is_not_lost(parked: bool) -> None:
    world = strict(paused=parked)
    world.publish(3)
    await world.until(lambda: world.state.parked if parked else len(world.acked) == 3)
    world.put(None)
    await world.until(lambda: world.policies.asked == 1)
    world.publish()
    world.policies.leader[RECEIVER] = policy()
    await world.until(lambda: bool(world.journal.of(f.Removed)))
    await world.until(lambda: 4 in world.sender.positions)
    assert world.dead_letters.buried == []


@in_virtual_time
async def test_a_receiver_that_is_there_after_all_is_not_removed() -> None:
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.host.configuration_changed(RECEIVER, None)
    world.publish()
    await world.until_settled(2)
    assert world.journal.of(f.Removed) == []


# ---- put again at once


def put_again(world: ShardWorld, **members: Any) -> None:
    """Removed and put again before the node has read either."""
    world.policies.remove(RECEIVER, world.clock.now())
    world.put(policy(**members))


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@pytest.mark.parametrize("parked", [False, True])
@in_virtual_time
async def test_a_receiver_that_was_put_again_unnoticed_gets_no_old_event(parked: bool, order: str) -> None:
    world = ShardWorld(policy(paused=parked, order=order))
    world.sender.latency_s = 1
    world.publish(100)
    await world.until(lambda: world.state.parked)
    await world.pass_time(0.5)
    old = len(world.sender.made)
    put_again(world)
    await world.pass_time(0.001)
    world.publish(3)
    await world.until(lambda: len(world.sender.made) == old + 3)
    assert sorted(world.sender.positions[old:]) == [101, 102, 103]
    assert sorted(filter(None, world.sender.numbers[old:])) == [101, 102, 103]
    (removed,) = world.journal.of(f.Removed)
    assert (removed.discarded, removed.removal) == (100 - old, 1)
    assert world.dead_letters.buried == []
    await world.until(lambda: not world.state.parked)


@in_virtual_time
async def test_a_removal_is_noticed_at_a_much_later_event_which_is_delivered() -> None:
    world = strict()
    world.publish(3)
    await world.until_settled(3)
    world.crash(snapshots=True)
    world.policies.remove(RECEIVER, world.clock.now())
    await world.pass_time(60)
    world.publish(2)
    await world.until(lambda: len(world.sender.made) == 5)
    assert world.sender.numbers == [1, 2, 3, 4, 5]
    assert [each.discarded for each in world.journal.of(f.Removed)] == [0]
    assert [each.removal for each in world.journal.of(f.Opened)] == [0, 1]


@in_virtual_time
async def test_one_removal_is_obeyed_once() -> None:
    world = strict()
    world.publish()
    await world.until_settled(1)
    put_again(world)
    world.publish()
    await world.until_settled(2)
    world.crash()
    world.put(policy(timeout_s=3))
    world.publish()
    await world.until_settled(3)
    assert len(world.journal.of(f.Removed)) == 1


@in_virtual_time
async def test_a_receiver_that_is_put_does_not_read_events_that_were_turned_away() -> None:
    """The receiver may have no state, and read its events from the stream."""
    world = ShardWorld()
    world.publish(50)
    await world.until(lambda: len(world.dead_letters.buried) == 50)
    await world.until(lambda: world.host.shard_unacked.unacked_count == 0)
    world.publish(receiver="acme.other")
    await world.until(lambda: world.host.shard_unacked.unacked_count == 0)
    world.journal.folded.clear()
    world.crash()
    world.put(policy(paused=True))
    world.publish(100)
    await world.until(lambda: world.state.parked)
    world.put(policy())
    await world.until_settled(100)
    assert world.sender.positions == list(range(52, 152))


@in_virtual_time
async def test_a_second_removal_while_the_first_one_is_obeyed_is_obeyed_too() -> None:
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.stream.delay_s = 0.4
    for _ in range(2):
        await world.pass_time(0.1)
        world.put(None)
        await world.pass_time(0.01)
        world.put(policy())
        await world.pass_time(0.1)
        world.publish()
    await world.until_settled(2)
    assert world.sender.positions == [1, 3]
    assert world.sender.numbers[-1] == world.state.frontier.sequence
    assert [each.removal for each in world.journal.of(f.Removed)] == [1, 2]


@in_virtual_time
@pytest.mark.parametrize("known", [False, True])
async def test_a_removal_before_anything_was_known_of_the_receiver_is_obeyed(known: bool) -> None:
    """The receiver is put, gets an event, is removed and put again before the node notices any of it."""
    world = ShardWorld()
    if known:
        world.put(policy())
        world.publish()
        await world.until_settled(1)
        world.put(None)
        await world.until(lambda: bool(world.journal.of(f.Removed)))
        await world.pass_time(100)
    world.store()
    await world.pass_time(0.1)
    world.policies.remove(RECEIVER, world.clock.now())
    world.put(policy())
    world.hand_out()
    await world.pass_time(5)
    world.publish()
    await world.until_settled(1 + known)
    assert world.sender.positions == ([1, 3] if known else [2])
    assert world.sender.numbers == ([1, 3] if known else [2])
