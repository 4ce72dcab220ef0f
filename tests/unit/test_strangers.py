"""Names that nobody knows: turned away together, behind the known, and each of their events buried once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest

from actors.ids import UNKNOWN
from actors.machine import facts as f
from actors.machine.facts import Burial
from actors.ports import Invalid
from actors.retention import Needed
from actors.runtime import strangers
from actors.runtime.strangers import LEFT_BEHIND_S, PAUSE_S, WAITING_MAX, Strangers
from tests.unit.machine import policy
from tests.unit.shard_world import RECEIVER, ShardWorld, in_virtual_time, strict

NOBODY = "acme.nobody"


def names(count: int) -> list[str]:
    return [f"acme.x{number}" for number in range(count)]


def flood(world: ShardWorld, count: int, *, size: int = 2) -> None:
    """An event for each of so many names."""
    for name in names(count):
        world.publish(receiver=name, body=b"x" * size)


def record_of(world: ShardWorld) -> Strangers:
    """The record of the shard."""
    record = world.host.shells[UNKNOWN]
    assert isinstance(record, Strangers)
    return record


async def hold_burials(world: ShardWorld) -> Callable[[], None]:
    """No dead letter can be stored until what this returns is called."""
    bury, released = world.graveyard.bury, asyncio.Event()

    async def hold(receiver: str, burials: Sequence[Burial], answers: Mapping[int, str]) -> None:
        await released.wait()
        await bury(receiver, burials, answers)

    world.graveyard.bury = hold  # type: ignore[method-assign]
    return released.set


async def all_buried(world: ShardWorld, count: int) -> None:
    await world.until(lambda: len(world.graveyard.buried) >= count)
    await world.until(lambda: world.host.bindings.bound == 0)
    assert len({each.position for each in world.graveyard.buried}) == len(world.graveyard.buried) == count


@in_virtual_time
async def test_thousands_of_names_cost_no_actor_no_snapshot_and_a_question_a_turn() -> None:
    world = ShardWorld()
    flood(world, 2000)
    await all_buried(world, 2000)
    assert set(world.host.shells) == {UNKNOWN}
    assert set(world.host.take_changed()) == {UNKNOWN}
    assert world.snapshots.loads == 1
    assert world.policies.asked < 100
    assert len(world.journal.of(f.TurnedAway)) < 100
    assert {(each.receiver, each.reason) for each in world.graveyard.buried} == {
        (name, "unknown_receiver") for name in names(2000)
    }
    assert world.tally.dead_letters == {"unknown_receiver": 2000}


@in_virtual_time
async def test_a_few_at_a_time_are_worth_few_flushes() -> None:
    world = ShardWorld()
    for name in names(100):
        world.publish(receiver=name)
        await world.pass_time(0.1)
    await all_buried(world, 100)
    assert len(world.journal.of(f.TurnedAway)) <= 10 / PAUSE_S + 2


@in_virtual_time
async def test_what_waits_for_a_burial_is_bounded_in_number_and_in_characters() -> None:
    world = ShardWorld()
    sizes: list[tuple[int, int]] = []

    async def bury(receiver: str, burials: Sequence[Burial], answers: Mapping[int, str]) -> None:
        waiting = world.host.shells[UNKNOWN].state.burials
        sizes.append((len(waiting), sum(len(each.receiver) for each in waiting)))
        await world.pass_time(0.5)

    world.graveyard.bury = bury  # type: ignore[method-assign]
    for number in range(300):
        world.publish(receiver=f"acme.{'y' * 500}{number}")
    await world.until(lambda: world.host.bindings.bound == 0)
    assert max(number for number, _ in sizes) <= 128
    assert max(length for _, length in sizes) <= strangers.NAMES_LENGTH_MAX


@in_virtual_time
async def test_known_receivers_go_before_them() -> None:
    """Nobody is turned away above an event that is still held for an actor."""
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
async def test_a_crash_loses_none_and_repeats_none_on_record(fact: type[f.Fact]) -> None:
    """Before it is confirmed nothing was done; after it the burial is owed, whoever owns the shard."""
    world = ShardWorld()
    world.journal.hold_at = fact
    flood(world, 5)
    await world.pass_time(3)
    assert len(world.graveyard.buried) == (0 if fact is f.TurnedAway else 5)
    world.graveyard.buried.clear()  # Burying again is harmless: the message id is the same.
    world.crash()
    await all_buried(world, 5)
    assert [len(each.events) for each in world.journal.of(f.TurnedAway)] == [5]


@in_virtual_time
async def test_a_receiver_that_is_put_while_its_event_waits_gets_it() -> None:
    world = strict()
    world.sender.latency_s = 1.5
    world.publish()
    world.publish(receiver=NOBODY)
    await world.pass_time(0.5)
    world.put(policy(), NOBODY)
    world.publish(receiver=NOBODY)
    await world.until(lambda: len(world.sender.made) == 3)
    assert sorted(world.sender.positions) == [1, 2, 3]
    assert [each.sequence for each in world.sender.made if each.receiver == NOBODY] == [1, 2]
    assert world.graveyard.buried == []


@in_virtual_time
async def test_one_that_is_put_in_the_midst_of_a_flood_waits_for_nobody() -> None:
    """It is told at once where its events lie, and gets them in their order while others go on to wait."""
    world = strict()
    release = await hold_burials(world)
    flood(world, 200)
    world.publish(40, receiver=NOBODY)
    flood(world, 200)
    world.publish(40, receiver=NOBODY)
    await world.until(lambda: world.journal.of(f.TurnedAway) != [])
    world.put(policy(), NOBODY)
    world.publish(40, receiver=NOBODY)
    await world.until(lambda: len(world.sender.made) == 120, within_s=1.0)
    mine = [*range(201, 241), *range(441, 521)]
    assert world.sender.positions == mine
    assert world.sender.numbers == list(range(1, 121))
    assert len(world.graveyard.buried) == 0
    release()
    await all_buried(world, 400)


@in_virtual_time
async def test_none_of_its_events_overtakes_another() -> None:
    """Also where it is known already, and the record was not told yet."""
    world = strict()
    world.policies.unavailable = True
    world.publish(receiver=NOBODY)
    await world.pass_time(0.5)
    world.policies.known[NOBODY] = world.policies.leader[NOBODY] = policy()
    world.publish(receiver=NOBODY)
    await world.pass_time(0.5)
    world.policies.unavailable = False
    await world.until(lambda: len(world.sender.made) == 2)
    assert world.sender.positions == [1, 2]


@in_virtual_time
async def test_so_does_one_of_whose_events_nobody_knows_but_the_stream() -> None:
    world = strict()
    release = await hold_burials(world)
    await world.host.resident(UNKNOWN)
    flood(world, 2 * WAITING_MAX, size=1024)
    world.publish(3, receiver=NOBODY)
    world.put(policy(), NOBODY)
    await world.until(lambda: len(world.sender.made) == 3, within_s=1.0)
    assert world.sender.positions == [2 * WAITING_MAX + each for each in (1, 2, 3)]
    world.publish(2, receiver=NOBODY)
    await world.until(lambda: len(world.sender.made) == 5, within_s=1.0)
    release()
    await all_buried(world, 2 * WAITING_MAX)


@in_virtual_time
async def test_one_that_cannot_be_judged_holds_nobody_up() -> None:
    """It lies in the stream until the leader of the configurations speaks again."""
    world = strict()
    world.policies.unavailable = True
    world.publish(receiver=NOBODY)
    for _ in range(20):
        world.publish(5)
        await world.pass_time(0.5)
    await world.pass_time(2.5)
    assert world.journal.floor == 101
    assert sorted(world.acked) == list(range(1, 102))
    assert len(world.sender.made) == 100
    assert (world.graveyard.buried, world.journal.of(f.TurnedAway)) == ([], [])
    world.policies.unavailable = False
    await all_buried(world, 1)
    await world.until(lambda: not world.journal.folded[UNKNOWN].parked)
    assert world.stream.stretches == 0


@in_virtual_time
async def test_nor_does_it_keep_what_came_before_it() -> None:
    world = strict()
    world.publish(100)
    await world.until_settled(100)
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 101)
    assert world.host.needed() == Needed(101, UNKNOWN)


@in_virtual_time
async def test_so_do_many() -> None:
    """Of most of them only the stream knows; memory is bounded, and none is lost."""
    world = strict()
    world.policies.unavailable = True
    for _ in range(30):
        flood(world, 100)
        world.publish()
        await world.pass_time(0.1)
        assert world.host.bindings.bound <= WAITING_MAX + 1
    await world.pass_time(2.5)
    assert world.journal.floor == len(world.stream.messages)
    assert len(world.sender.made) == 30
    assert len(record_of(world).waiting) <= WAITING_MAX
    world.policies.unavailable = False
    await all_buried(world, 3000)
    assert len([each for each in world.journal.of(f.Parked) if each.receiver == UNKNOWN]) == 1


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_the_next_owner_finds_those_that_were_not_judged(snapshots: bool) -> None:
    """Also one that is known by then, whose events lie on both sides of the floor."""
    world = strict()
    world.policies.unavailable = True
    world.publish(3, receiver=NOBODY)
    flood(world, 5)
    world.publish(5)
    await world.until(lambda: world.journal.floor == 13)
    world.policies.unavailable = False
    world.host.stop()
    world.policies.known[NOBODY] = world.policies.leader[NOBODY] = policy()
    world.store(3, receiver=NOBODY)
    world.crash(snapshots=snapshots)
    await all_buried(world, 5)
    await world.until(lambda: len(world.sender.made) == 11)
    assert world.sender.positions[5:] == [1, 2, 3, 14, 15, 16]


@pytest.mark.parametrize("valid", [False, True])
@in_virtual_time
async def test_one_that_is_put_gets_first_what_lies_in_the_stream(valid: bool) -> None:
    """It came when nobody knew of the name, and an owner that vanished left it there."""
    world = strict()
    world.policies.unavailable = True
    world.publish(3, receiver=NOBODY)
    world.publish()
    await world.until(lambda: world.journal.floor == 4)
    world.crash(snapshots=True)
    await world.host.resident(UNKNOWN)
    world.stream.unavailable = True
    world.policies.invalid.add(NOBODY)
    if valid:
        world.put(policy(), NOBODY)
    world.publish(3, receiver=NOBODY)
    await world.pass_time(3)
    world.stream.unavailable = False
    world.put(policy(), NOBODY)
    await world.until(lambda: len(world.sender.made) == 7)
    assert world.sender.positions[1:] == [1, 2, 3, 5, 6, 7]


@in_virtual_time
async def test_what_came_before_the_record_was_read_goes_first() -> None:
    """Also where the record is parked, and the receiver is known by its snapshot alone."""
    world = strict()
    world.put(policy(), NOBODY)
    world.publish(receiver=NOBODY)
    await world.until(lambda: len(world.sender.made) == 1)
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 2)
    world.policies.known.pop(NOBODY)
    world.crash(snapshots=True)
    world.stream.unavailable = True
    world.publish(receiver=NOBODY)
    await world.host.resident(UNKNOWN)
    world.publish(receiver=NOBODY)
    world.policies.unavailable = False
    await world.pass_time(1)
    world.stream.unavailable = False
    await world.until(lambda: len(world.sender.made) == 3)
    assert world.sender.positions == [1, 3, 4]


@in_virtual_time
async def test_what_was_turned_away_is_not_read_by_one_that_is_put() -> None:
    world = strict()
    world.publish(2, receiver=NOBODY)
    await all_buried(world, 2)
    world.policies.unavailable = True
    world.publish(2, receiver=NOBODY)
    await world.pass_time(0.5)
    world.put(policy(), NOBODY)
    await world.until(lambda: len(world.sender.made) == 2)
    await world.pass_time(1)
    assert world.sender.positions == [3, 4]
    assert world.journal.of(f.Repeated) == []


@in_virtual_time
async def test_what_is_too_much_for_it_is_counted() -> None:
    world = strict()
    world.policies.unavailable = True
    world.publish(300, receiver=NOBODY)
    await world.until(lambda: world.host.bindings.bound == 0)
    world.crash(snapshots=True)
    await world.host.resident(UNKNOWN)
    world.put(policy(paused=True, backlog_max=50), NOBODY)
    await world.until(lambda: len(world.graveyard.buried) == 250)
    assert {each.reason for each in world.graveyard.buried} == {"overflow"}


@in_virtual_time
async def test_one_that_was_only_asked_for_is_nobody() -> None:
    """What came before lies in the stream; another event must not overtake it."""
    world = ShardWorld()
    world.policies.unavailable = True
    world.publish(receiver=NOBODY)
    await world.until(lambda: world.journal.floor == 1)
    await world.host.resident(NOBODY)
    world.publish(receiver=NOBODY)
    world.policies.unavailable = False
    await all_buried(world, 2)
    assert [len(each.events) for each in world.journal.of(f.TurnedAway)] == [2]


@in_virtual_time
async def test_where_the_stream_is_full_they_are_given_up_unjudged() -> None:
    world = strict()
    world.policies.unavailable = True
    flood(world, 10)
    await world.until(lambda: world.journal.floor == 10)
    world.journal.flush()
    assert world.host.needed() == Needed(1, UNKNOWN)
    world.host.evict(7)
    await all_buried(world, 6)
    assert {each.reason for each in world.graveyard.buried} == {"evicted"}
    await world.until(lambda: world.host.needed() == Needed(7, UNKNOWN))
    assert world.journal.folded[UNKNOWN].parked


@in_virtual_time
async def test_what_holds_none_of_them_is_not_kept_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "PASS_OVER_MIN", 200)
    world = strict()
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 1)
    world.publish(200)
    flood(world, 1)
    await world.until(lambda: world.host.bindings.bound == 0)
    assert world.host.needed() == Needed(1, UNKNOWN)
    world.host.evict(2)
    await all_buried(world, 1)
    await world.until(lambda: world.host.needed() == Needed(202, UNKNOWN))
    world.policies.unavailable = False
    world.crash()
    await all_buried(world, 2)
    assert world.stream.stretches == 1


@in_virtual_time
async def test_what_was_not_read_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "PASS_OVER_MIN", 1)
    monkeypatch.setattr(strangers, "READS_A_TURN", 1)
    world = strict()
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 1)
    world.publish(200)
    flood(world, 1)
    await world.until(lambda: world.host.bindings.bound == 0)
    world.host.evict(2)
    await world.until(lambda: world.journal.of(f.Buried) != [])
    world.crash()
    await world.until(lambda: world.journal.folded[UNKNOWN].frontier.position > 1)
    world.crash()
    world.policies.unavailable = False
    await all_buried(world, 2)


@in_virtual_time
async def test_what_is_gone_from_the_stream_is_not_waited_for() -> None:
    world = ShardWorld()
    world.policies.unavailable = True
    flood(world, 2)
    await world.until(lambda: world.journal.floor == 2)
    world.stream.lost.add(2)
    world.policies.unavailable = False
    world.crash()
    await all_buried(world, 1)
    await world.until(lambda: not world.journal.folded[UNKNOWN].parked)


@in_virtual_time
async def test_what_is_about_to_come_is_left_to_come() -> None:
    """Reading the shard goes no further than where something unjudged can lie."""
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 2)
    world.crash()
    world.store()
    await world.until(lambda: len(record_of(world).waiting) == 1)
    world.hand_out()
    await world.until_settled(2)
    assert {each.receiver for each in world.journal.of(f.Parked)} == {UNKNOWN}


@in_virtual_time
async def test_with_nobody_left_to_judge_nobody_is_asked() -> None:
    world = strict()
    world.policies.unavailable = True
    world.publish(receiver=NOBODY)
    await world.until(lambda: world.journal.floor == 1)
    world.put(policy(), NOBODY)
    await world.until(lambda: not world.journal.folded[UNKNOWN].parked)
    assert world.sender.positions == [1]


@in_virtual_time
async def test_whoever_was_turned_away_is_not_delivered_once_the_name_is_put() -> None:
    """Not even where the burial was confirmed and nothing else, and the receiver reads from the stream."""
    world = strict()
    for _ in range(20):
        world.publish(receiver=NOBODY)
    await all_buried(world, 20)
    world.put(policy(paused=True), NOBODY)
    for _ in range(200):
        world.publish(receiver=NOBODY)
    await world.until(lambda: NOBODY in world.host.parked)
    world.crash()
    world.put(policy(), NOBODY)
    await world.until(lambda: len(world.sender.made) == 200)
    assert world.sender.positions == list(range(21, 221))


@in_virtual_time
async def test_nor_where_its_configuration_was_invalid_at_first() -> None:
    world = ShardWorld()
    for _ in range(20):
        world.publish(receiver=NOBODY)
    await all_buried(world, 20)
    world.policies.leader[NOBODY] = Invalid(problems=("url: missing",))
    for _ in range(5):
        world.publish(receiver=NOBODY)
    await world.until(lambda: NOBODY in world.host.parked and world.host.bindings.bound == 0)
    world.crash()
    world.put(policy(), NOBODY)
    await world.until(lambda: len(world.sender.made) == 5)
    assert world.sender.positions == list(range(21, 26))


@in_virtual_time
async def test_what_comes_again_after_a_reset_is_recognised() -> None:
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
async def test_what_comes_again_while_it_waits_is_one_event_and_has_the_last_reply() -> None:
    world = strict()
    world.policies.unavailable = True
    world.journal.hold_at = f.Parked
    world.publish(receiver=NOBODY)
    await world.pass_time(3)
    replies: list[str] = []
    world.host.ack = replies.extend
    for reply in ("second", "third"):
        world.host.arrive(NOBODY, world.stream.messages[0][1], reply)
    world.journal.let_go()
    world.policies.unavailable = False
    await all_buried(world, 1)
    assert replies == ["1", "third"]
    assert not record_of(world).names


@in_virtual_time
async def test_memory_is_bounded_also_before_the_record_is_read() -> None:
    world = ShardWorld()
    world.policies.unavailable = True
    flood(world, 3000)
    await world.host.resident(UNKNOWN)
    assert len(record_of(world).waiting) <= WAITING_MAX
    assert world.host.bindings.bound == 0
    world.policies.unavailable = False
    await all_buried(world, 3000)


@in_virtual_time
async def test_whoever_has_a_snapshot_is_no_stranger() -> None:
    """Its configuration was wiped out together with every trace of its removal."""
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
async def test_where_nothing_can_be_buried_what_is_left_far_behind_is_discarded() -> None:
    """Else more and more of the stream would have to be kept for them, and read again."""
    world = ShardWorld(policy(), unacked_max=400)
    await hold_burials(world)
    flood(world, 150)
    await world.pass_time(LEFT_BEHIND_S / 2)
    for _ in range(30):
        world.publish(10)
        await world.pass_time(0.5)
    assert world.journal.floor == 450
    assert not any(each.discarded for each in world.journal.of(f.TurnedAway))
    flood(world, 1)
    await world.pass_time(LEFT_BEHIND_S)
    discarded = [each for each in world.journal.of(f.TurnedAway) if each.discarded]
    assert [len(each.events) for each in discarded] == [22]
    assert world.tally.dead_letters["discarded"] == 22


@in_virtual_time
async def test_what_comes_again_before_the_record_is_read_is_recognised() -> None:
    world = ShardWorld()
    world.publish(2, receiver="acme.nobody")
    await world.until(lambda: len(world.graveyard.buried) == 2)
    await world.pass_time(1)
    world.journal.floor = 0
    world.crash(snapshots=True)
    await world.until(lambda: world.host.bindings.bound == 0)
    await world.pass_time(5)
    assert [each.position for each in world.graveyard.buried] == [1, 2]
    assert len(world.journal.of(f.TurnedAway)) == 1
    assert world.acked == [1, 2, 1, 2]
