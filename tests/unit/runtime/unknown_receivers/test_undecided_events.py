"""Events whose receivers cannot be decided: they stay in the stream, and delay no other event."""

import pytest

from actors.ids import UNKNOWN_RECEIVERS
from actors.machine import facts as f
from actors.memory.retention import NeededPosition
from actors.runtime.unknown_receivers import decision_rounds
from actors.runtime.unknown_receivers.decision_rounds import READ_AT_ONCE
from actors.runtime.unknown_receivers.undecided_events import WAITING_MAX
from tests.unit.worlds.shard import ShardWorld, strict
from tests.unit.worlds.unknown import UNKNOWN, all_buried, flood, hold_burials, record_of
from tests.unit.worlds.values import answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time


@in_virtual_time
async def test_an_event_that_cannot_be_decided_holds_no_receiver_up() -> None:
    """The undecided event stays in the stream until the leader of the configurations answers again."""
    world = strict()
    world.policies.unavailable = True
    world.publish(receiver=UNKNOWN)
    for _ in range(20):
        world.publish(5)
        await world.pass_time(0.5)
    await world.pass_time(2.5)
    assert world.journal.floor == 101
    assert sorted(world.acked) == list(range(1, 102))
    assert len(world.sender.made) == 100
    assert (world.dead_letters.buried, world.journal.of(f.TurnedAway)) == ([], [])
    world.policies.unavailable = False
    await all_buried(world, 1)
    await world.until(lambda: not world.journal.folded[UNKNOWN_RECEIVERS].parked)
    assert world.stream.stretches == 0


@in_virtual_time
async def test_an_undecided_event_does_not_keep_what_came_before_it() -> None:
    world = strict()
    world.publish(100)
    await world.until_settled(100)
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 101)
    assert world.host.needed() == NeededPosition(101, UNKNOWN_RECEIVERS)


@in_virtual_time
async def test_many_undecided_events_hold_no_receiver_up() -> None:
    """Most of the events stay in the stream only; memory is bounded, and no event is lost."""
    world = strict()
    world.policies.unavailable = True
    for _ in range(30):
        flood(world, 100)
        world.publish()
        await world.pass_time(0.1)
        assert world.host.shard_unacked.unacked_count <= WAITING_MAX + 1
    await world.pass_time(2.5)
    assert world.journal.floor == len(world.stream.messages)
    assert len(world.sender.made) == 30
    assert len(record_of(world).undecided) <= WAITING_MAX
    world.policies.unavailable = False
    await all_buried(world, 3000)
    assert len([each for each in world.journal.of(f.Parked) if each.receiver == UNKNOWN_RECEIVERS]) == 1


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_the_next_owner_finds_the_undecided_events(snapshots: bool) -> None:
    """One receiver is known by then, and its events are on both sides of the floor."""
    world = strict()
    world.policies.unavailable = True
    world.publish(3, receiver=UNKNOWN)
    flood(world, 5)
    world.publish(5)
    await world.until(lambda: world.journal.floor == 13)
    world.policies.unavailable = False
    world.host.stop()
    world.policies.known[UNKNOWN] = world.policies.leader[UNKNOWN] = policy()
    world.store(3, receiver=UNKNOWN)
    world.crash(snapshots=snapshots)
    await all_buried(world, 5)
    await world.until(lambda: len(world.sender.made) == 11)
    assert world.sender.positions[5:] == [1, 2, 3, 14, 15, 16]


@pytest.mark.parametrize("valid", [False, True])
@in_virtual_time
async def test_a_receiver_that_is_put_gets_first_what_is_in_the_stream(valid: bool) -> None:
    """The first events came while the name was unknown, and a vanished owner left them in the stream."""
    world = strict()
    world.policies.unavailable = True
    world.publish(3, receiver=UNKNOWN)
    world.publish()
    await world.until(lambda: world.journal.floor == 4)
    world.crash(snapshots=True)
    await world.host.residents.activate_unknown().ready
    world.stream.unavailable = True
    world.policies.invalid.add(UNKNOWN)
    if valid:
        world.put(policy(), UNKNOWN)
    world.publish(3, receiver=UNKNOWN)
    await world.pass_time(3)
    world.stream.unavailable = False
    world.put(policy(), UNKNOWN)
    await world.until(lambda: len(world.sender.made) == 7)
    assert world.sender.positions[1:] == [1, 2, 3, 5, 6, 7]


@in_virtual_time
async def test_a_parked_receiver_without_a_snapshot_gets_first_what_is_in_the_stream() -> None:
    """The receiver is activated unasked, before the record that says where it begins has been read."""
    world = strict()
    world.policies.unavailable = True
    world.publish(3, receiver=UNKNOWN)
    world.publish()
    await world.until(lambda: world.journal.floor == 4)
    world.policies.unavailable = False
    world.policies.known[UNKNOWN] = world.policies.leader[UNKNOWN] = policy()
    world.store(receiver=UNKNOWN)
    world.crash(snapshots=True, parked=[UNKNOWN])
    await world.until(lambda: len(world.sender.made) == 5)
    assert world.sender.positions[1:] == [1, 2, 3, 5]


@in_virtual_time
async def test_events_that_came_before_the_record_was_read_go_first() -> None:
    """The record may be parked, and the receiver be known by its snapshot alone."""
    world = strict()
    world.put(policy(), UNKNOWN)
    world.publish(receiver=UNKNOWN)
    await world.until(lambda: len(world.sender.made) == 1)
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 2)
    world.policies.known.pop(UNKNOWN)
    world.crash(snapshots=True)
    world.stream.unavailable = True
    world.publish(receiver=UNKNOWN)
    await world.host.residents.activate_unknown().ready
    world.publish(receiver=UNKNOWN)
    world.policies.unavailable = False
    await world.pass_time(1)
    world.stream.unavailable = False
    await world.until(lambda: len(world.sender.made) == 3)
    assert world.sender.positions == [1, 3, 4]


@in_virtual_time
async def test_a_receiver_put_later_does_not_read_events_that_were_turned_away() -> None:
    world = strict()
    world.publish(2, receiver=UNKNOWN)
    await all_buried(world, 2)
    world.policies.unavailable = True
    world.publish(2, receiver=UNKNOWN)
    await world.pass_time(0.5)
    world.put(policy(), UNKNOWN)
    await world.until(lambda: len(world.sender.made) == 2)
    await world.pass_time(1)
    assert world.sender.positions == [3, 4]
    assert world.journal.of(f.EventDropped) == []


@in_virtual_time
async def test_events_beyond_its_room_are_counted() -> None:
    world = strict()
    world.policies.unavailable = True
    world.publish(300, receiver=UNKNOWN)
    await world.until(lambda: world.host.shard_unacked.unacked_count == 0)
    world.crash(snapshots=True)
    await world.host.residents.activate_unknown().ready
    world.put(policy(paused=True, backlog_max=50), UNKNOWN)
    await world.until(lambda: len(world.dead_letters.buried) == 250)
    assert {each.reason for each in world.dead_letters.buried} == {"overflow"}


@in_virtual_time
async def test_a_receiver_that_was_only_asked_for_is_not_known() -> None:
    """An earlier event is still in the stream, and a later one must not overtake it."""
    world = ShardWorld()
    world.policies.unavailable = True
    world.publish(receiver=UNKNOWN)
    await world.until(lambda: world.journal.floor == 1)
    await world.host.residents.when_loaded(UNKNOWN)
    world.publish(receiver=UNKNOWN)
    world.policies.unavailable = False
    await all_buried(world, 2)
    assert [len(each.events) for each in world.journal.of(f.TurnedAway)] == [2]


@in_virtual_time
async def test_undecided_events_are_given_up_if_the_stream_is_full() -> None:
    world = strict()
    world.policies.unavailable = True
    flood(world, 10)
    await world.until(lambda: world.journal.floor == 10)
    world.journal.append()
    assert world.host.needed() == NeededPosition(1, UNKNOWN_RECEIVERS)
    world.host.evict("", 7)
    await all_buried(world, 6)
    assert {each.reason for each in world.dead_letters.buried} == {"evicted"}
    await world.until(lambda: world.host.needed() == NeededPosition(7, UNKNOWN_RECEIVERS))
    assert world.journal.folded[UNKNOWN_RECEIVERS].parked


@in_virtual_time
async def test_a_tenant_that_is_evicted_costs_a_new_receiver_of_another_no_event() -> None:
    """The leader of the configurations does not answer: this node has not heard of the receiver yet."""
    world = ShardWorld()
    world.policies.unavailable = True
    world.policies.leader["umbra.new"] = policy()
    world.publish(3, receiver="umbra.new")
    await world.until(lambda: world.journal.floor == 3)
    world.journal.append()
    world.host.evict("acme", 4)
    await world.pass_time(10)
    assert world.dead_letters.buried == []


@in_virtual_time
async def test_positions_without_undecided_events_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decision_rounds, "PASSED_POSITIONS_MIN", 200)
    world = strict()
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 1)
    world.publish(200)
    flood(world, 1)
    await world.until(lambda: world.host.shard_unacked.unacked_count == 0)
    assert world.host.needed() == NeededPosition(1, UNKNOWN_RECEIVERS)
    world.host.evict("", 2)
    await all_buried(world, 1)
    await world.until(lambda: world.host.needed() == NeededPosition(202, UNKNOWN_RECEIVERS))
    world.policies.unavailable = False
    world.crash()
    await all_buried(world, 2)
    assert world.stream.stretches == 1


@in_virtual_time
async def test_an_unread_event_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_rounds, "PASSED_POSITIONS_MIN", 1)
    monkeypatch.setattr(decision_rounds, "READS_A_ROUND", 1)
    world = strict()
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 1)
    world.publish(200)
    flood(world, 1)
    await world.until(lambda: world.host.shard_unacked.unacked_count == 0)
    world.host.evict("", 2)
    await world.until(lambda: world.journal.of(f.Buried) != [])
    world.crash()
    await world.until(lambda: world.journal.folded[UNKNOWN_RECEIVERS].frontier.position > 1)
    world.crash()
    world.policies.unavailable = False
    await all_buried(world, 2)


@in_virtual_time
async def test_an_event_that_is_gone_from_the_stream_is_not_waited_for() -> None:
    world = ShardWorld()
    world.policies.unavailable = True
    flood(world, 2)
    await world.until(lambda: world.journal.floor == 2)
    world.stream.lost.add(2)
    world.policies.unavailable = False
    world.crash()
    await all_buried(world, 1)
    await world.until(lambda: not world.journal.folded[UNKNOWN_RECEIVERS].parked)


@in_virtual_time
async def test_the_record_does_not_read_events_that_are_about_to_come() -> None:
    """The record reads the shard only as far as undecided events may be."""
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 2)
    world.crash()
    world.store()
    await world.until(lambda: len(record_of(world).undecided) == 1)
    world.hand_out()
    await world.until_settled(2)
    assert {each.receiver for each in world.journal.of(f.Parked)} == {UNKNOWN_RECEIVERS}


@in_virtual_time
async def test_the_leader_is_not_asked_if_nothing_is_undecided() -> None:
    world = strict()
    world.policies.unavailable = True
    world.publish(receiver=UNKNOWN)
    await world.until(lambda: world.journal.floor == 1)
    world.put(policy(), UNKNOWN)
    await world.until(lambda: not world.journal.folded[UNKNOWN_RECEIVERS].parked)
    assert world.sender.positions == [1]


@in_virtual_time
async def test_an_event_found_for_a_known_receiver_was_counted_when_it_came() -> None:
    """The record reads the whole shard; no receiver is given more to wait for by that."""
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.put(policy(paused=True, backlog_max=400))
    world.policies.unavailable = True
    flood(world, WAITING_MAX + 1)
    world.publish(300)
    flood(world, 10)
    await world.until(lambda: world.host.shard_unacked.unacked_count == 0)
    world.policies.unavailable = False
    await all_buried(world, WAITING_MAX + 11)
    await world.pass_time(3)
    assert {each.reason for each in world.dead_letters.buried} == {"unknown_receiver"}


@in_virtual_time
async def test_an_event_that_its_receiver_has_read_is_not_counted_again() -> None:
    """The new receiver reads by itself and parks again before the record comes to these events."""
    world = strict(backlog_max=100)
    release = await hold_burials(world)
    flood(world, 2 * WAITING_MAX)
    world.publish(60, receiver=UNKNOWN)
    world.sender.reply = lambda _: answer(500)
    world.put(policy(backlog_max=100), UNKNOWN)
    await world.pass_time(5)
    release()
    await all_buried(world, 2 * WAITING_MAX)
    await world.pass_time(3)
    assert {each.reason for each in world.dead_letters.buried} == {"unknown_receiver"}


@in_virtual_time
async def test_few_known_receivers_come_into_memory_at_a_time() -> None:
    """After a takeover the record finds the events of all known receivers, which they already have."""
    world = ShardWorld()
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 1)
    known = [f"acme.known{number}" for number in range(2000)]
    for name in known:
        world.put(policy(), name)
        world.publish(receiver=name)
    await world.until(lambda: len(world.sender.made) == 2000)
    await world.pass_time(3)
    world.crash(snapshots=True)
    world.snapshots.delay_s = 0.3
    coming = 0
    while world.stream.stretches * READ_AT_ONCE < 2001:
        await world.pass_time(0.01)
        coming = max(coming, sum(not each.loaded for each in world.host.actors.values()))
    assert coming < 400
    await world.pass_time(3)
    assert not world.host.actors
    world.policies.unavailable = False
    await all_buried(world, 1)
    assert len(world.sender.made) == 2000
