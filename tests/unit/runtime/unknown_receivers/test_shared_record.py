"""Unknown receivers: turned away together, after the known ones, and each of their events buried once."""

from collections.abc import Mapping, Sequence

import pytest

from actors.ids import UNKNOWN_RECEIVERS
from actors.machine import facts as f
from actors.machine.facts import Burial
from actors.ports import Invalid
from actors.runtime.unknown_receivers import decision_rounds
from actors.runtime.unknown_receivers.decision_rounds import DISCARD_AFTER_S, ROUND_PAUSE_S
from actors.runtime.unknown_receivers.undecided_events import WAITING_MAX
from tests.unit.worlds.shard import RECEIVER, ShardWorld, strict
from tests.unit.worlds.unknown import UNKNOWN, all_buried, flood, hold_burials, names, record_of
from tests.unit.worlds.values import policy
from tests.unit.worlds.virtual_time import in_virtual_time


@in_virtual_time
async def test_thousands_of_names_cost_no_actor_no_snapshot_and_a_question_a_turn() -> None:
    world = ShardWorld()
    flood(world, 2000)
    await all_buried(world, 2000)
    assert not world.host.actors
    assert set(world.host.unsaved.take()) == {UNKNOWN_RECEIVERS}
    assert world.snapshots.loads == 1
    assert world.policies.asked < 100
    assert len(world.journal.of(f.TurnedAway)) < 100
    assert {(each.receiver, each.reason) for each in world.dead_letters.buried} == {
        (name, "unknown_receiver") for name in names(2000)
    }
    assert world.totals.dead_letters == {"unknown_receiver": 2000}


@in_virtual_time
async def test_a_few_at_a_time_are_worth_few_flushes() -> None:
    world = ShardWorld()
    for name in names(100):
        world.publish(receiver=name)
        await world.pass_time(0.1)
    await all_buried(world, 100)
    assert len(world.journal.of(f.TurnedAway)) <= 10 / ROUND_PAUSE_S + 2


@in_virtual_time
async def test_events_that_wait_for_a_burial_are_bounded_in_number_and_characters() -> None:
    world = ShardWorld()
    sizes: list[tuple[int, int]] = []

    async def bury(receiver: str, burials: Sequence[Burial], answers: Mapping[int, str]) -> None:
        waiting = record_of(world).state.burials
        sizes.append((len(waiting), sum(len(each.receiver) for each in waiting)))
        await world.pass_time(0.5)

    world.dead_letters.bury = bury  # type: ignore[method-assign]
    for number in range(300):
        world.publish(receiver=f"acme.{'y' * 500}{number}")
    await world.until(lambda: world.host.shard_unacked.unacked_count == 0)
    assert max(number for number, _ in sizes) <= 128
    assert max(length for _, length in sizes) <= decision_rounds.NAMES_LENGTH_MAX


@in_virtual_time
async def test_known_receivers_go_before_unknown_ones() -> None:
    """No event is turned away above one that is still held for an actor."""
    world = strict()
    world.sender.latency_s = 1.0
    world.publish()
    flood(world, 10)
    await world.pass_time(0.9)
    assert world.journal.of(f.TurnedAway) == []
    await all_buried(world, 10)
    assert world.journal.of(f.TurnedAway, f.Delivered)[0].receiver == RECEIVER


@pytest.mark.parametrize("fact", [f.TurnedAway, f.Buried])
@in_virtual_time
async def test_a_crash_loses_none_and_repeats_none_that_is_recorded(fact: type[f.Fact]) -> None:
    """Nothing is done before the fact is confirmed; then any owner of the shard has to bury the events."""
    world = ShardWorld()
    world.journal.hold_at = fact
    flood(world, 5)
    await world.pass_time(3)
    assert len(world.dead_letters.buried) == (0 if fact is f.TurnedAway else 5)
    world.dead_letters.buried.clear()  # Burying again is harmless: the message id is the same.
    world.crash()
    await all_buried(world, 5)
    assert [len(each.events) for each in world.journal.of(f.TurnedAway)] == [5]


@in_virtual_time
async def test_a_receiver_that_is_put_while_its_event_waits_gets_it() -> None:
    world = strict()
    world.sender.latency_s = 1.5
    world.publish()
    world.publish(receiver=UNKNOWN)
    await world.pass_time(0.5)
    world.put(policy(), UNKNOWN)
    world.publish(receiver=UNKNOWN)
    await world.until(lambda: len(world.sender.made) == 3)
    assert sorted(world.sender.positions) == [1, 2, 3]
    assert [each.sequence for each in world.sender.made if each.receiver == UNKNOWN] == [1, 2]
    assert world.dead_letters.buried == []


@in_virtual_time
async def test_a_receiver_that_is_put_during_a_flood_does_not_wait() -> None:
    """The receiver gets its positions at once, and its events in order, while others keep waiting."""
    world = strict()
    release = await hold_burials(world)
    flood(world, 200)
    world.publish(40, receiver=UNKNOWN)
    flood(world, 200)
    world.publish(40, receiver=UNKNOWN)
    await world.until(lambda: world.journal.of(f.TurnedAway) != [])
    world.put(policy(), UNKNOWN)
    world.publish(40, receiver=UNKNOWN)
    await world.until(lambda: len(world.sender.made) == 120, within_s=1.0)
    mine = [*range(201, 241), *range(441, 521)]
    assert world.sender.positions == mine
    assert world.sender.numbers == list(range(1, 121))
    assert len(world.dead_letters.buried) == 0
    release()
    await all_buried(world, 400)


@in_virtual_time
async def test_no_event_of_a_receiver_that_becomes_known_overtakes_another() -> None:
    """The receiver may already be known while the record has not been told yet."""
    world = strict()
    world.policies.unavailable = True
    world.publish(receiver=UNKNOWN)
    await world.pass_time(0.5)
    world.policies.known[UNKNOWN] = world.policies.leader[UNKNOWN] = policy()
    world.publish(receiver=UNKNOWN)
    await world.pass_time(0.5)
    world.policies.unavailable = False
    await world.until(lambda: len(world.sender.made) == 2)
    assert world.sender.positions == [1, 2]


@in_virtual_time
async def test_a_receiver_whose_events_only_the_stream_knows_does_not_wait() -> None:
    world = strict()
    release = await hold_burials(world)
    await world.host.residents.activate_unknown().ready
    flood(world, 2 * WAITING_MAX, size=1024)
    world.publish(3, receiver=UNKNOWN)
    await world.until(lambda: world.journal.of(f.TurnedAway) != [])
    assert record_of(world).has_unread
    world.put(policy(), UNKNOWN)
    await world.until(lambda: len(world.sender.made) == 3, within_s=1.0)
    assert world.sender.positions == [2 * WAITING_MAX + each for each in (1, 2, 3)]
    world.publish(2, receiver=UNKNOWN)
    await world.until(lambda: len(world.sender.made) == 5, within_s=1.0)
    release()
    await all_buried(world, 2 * WAITING_MAX)


@in_virtual_time
async def test_an_event_that_was_turned_away_is_not_delivered_when_the_name_is_put() -> None:
    """Only the burial may be confirmed so far, and the receiver read from the stream."""
    world = strict()
    for _ in range(20):
        world.publish(receiver=UNKNOWN)
    await all_buried(world, 20)
    world.put(policy(paused=True), UNKNOWN)
    for _ in range(200):
        world.publish(receiver=UNKNOWN)
    await world.until(lambda: UNKNOWN in world.host.parked)
    world.crash()
    world.put(policy(), UNKNOWN)
    await world.until(lambda: len(world.sender.made) == 200)
    assert world.sender.positions == list(range(21, 221))


@in_virtual_time
async def test_an_event_turned_away_stays_so_if_the_configuration_was_invalid_at_first() -> None:
    world = ShardWorld()
    for _ in range(20):
        world.publish(receiver=UNKNOWN)
    await all_buried(world, 20)
    world.policies.leader[UNKNOWN] = Invalid(problems=("url: missing",))
    for _ in range(5):
        world.publish(receiver=UNKNOWN)
    await world.until(lambda: UNKNOWN in world.host.parked and world.host.shard_unacked.unacked_count == 0)
    world.crash()
    world.put(policy(), UNKNOWN)
    await world.until(lambda: len(world.sender.made) == 5)
    assert world.sender.positions == list(range(21, 26))


@in_virtual_time
async def test_an_event_that_comes_again_after_a_reset_is_recognised() -> None:
    world = ShardWorld()
    world.journal.hold_at = f.TurnedAway
    flood(world, 5)
    await world.pass_time(0.5)
    world.hand_out_again()
    await world.pass_time(2)
    world.journal.let_go()
    await all_buried(world, 5)
    assert [len(each.events) for each in world.journal.of(f.TurnedAway)] == [5]


@in_virtual_time
async def test_an_event_that_comes_again_while_it_waits_is_one_event() -> None:
    world = strict()
    world.policies.unavailable = True
    world.journal.hold_at = f.Parked
    world.publish(receiver=UNKNOWN)
    await world.pass_time(3)
    for _ in range(2):
        world.host.arrive(UNKNOWN, world.stream.messages[0][1])
    world.journal.let_go()
    world.policies.unavailable = False
    await all_buried(world, 1)
    assert world.acked == [1]
    assert not record_of(world).undecided.receivers


@in_virtual_time
async def test_memory_is_bounded_also_before_the_record_is_read() -> None:
    world = ShardWorld()
    world.policies.unavailable = True
    flood(world, 3000)
    await world.host.residents.activate_unknown().ready
    assert len(record_of(world).undecided) <= WAITING_MAX
    assert world.host.shard_unacked.unacked_count == 0
    world.policies.unavailable = False
    await all_buried(world, 3000)


@in_virtual_time
async def test_a_receiver_with_a_snapshot_is_known() -> None:
    """The receiver's configuration is gone, and so is every trace of its removal."""
    world = strict()
    world.publish(3)
    await world.until_settled(3)
    world.crash(snapshots=True)
    world.policies.known.clear()
    world.policies.leader.clear()
    world.publish()
    await world.until(lambda: bool(world.journal.of(f.Removed)))
    assert world.journal.of(f.Removed)[0].next_sequence == 5
    assert world.journal.of(f.TurnedAway) == []


@in_virtual_time
async def test_events_far_behind_are_discarded_if_nothing_can_be_buried() -> None:
    """Otherwise more and more of the stream would have to be kept for them, and read again."""
    world = ShardWorld(policy(), unacked_max=400)
    await hold_burials(world)
    flood(world, 150)
    await world.pass_time(DISCARD_AFTER_S / 2)
    for _ in range(30):
        world.publish(10)
        await world.pass_time(0.5)
    assert world.journal.floor == 450
    assert not any(each.discarded for each in world.journal.of(f.TurnedAway))
    flood(world, 1)
    await world.pass_time(DISCARD_AFTER_S)
    discarded = [each for each in world.journal.of(f.TurnedAway) if each.discarded]
    assert [len(each.events) for each in discarded] == [22]
    assert world.totals.dead_letters["discarded"] == 22


@in_virtual_time
async def test_an_event_that_comes_again_before_the_record_is_read_is_recognised() -> None:
    world = ShardWorld()
    world.publish(2, receiver="acme.nobody")
    await world.until(lambda: len(world.dead_letters.buried) == 2)
    await world.pass_time(1)
    world.journal.floor = 0
    world.crash(snapshots=True)
    await world.until(lambda: world.host.shard_unacked.unacked_count == 0)
    await world.pass_time(5)
    assert [each.position for each in world.dead_letters.buried] == [1, 2]
    assert len(world.journal.of(f.TurnedAway)) == 1
    assert world.acked == [1, 2, 1, 2]
