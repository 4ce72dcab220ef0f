"""A backlog that is given up unread: expired, beyond its bound, evicted, skipped or forgotten."""

import asyncio
from functools import partial

import pytest

from actors.configuration.policy import Policy, Retry
from actors.configuration.transform import Transform
from actors.errors import ControlDenied
from actors.machine import facts as f
from actors.machine.state import State
from actors.ports import Invalid
from actors.runtime import host
from actors.runtime.operator_actions.forget import forget
from actors.runtime.operator_actions.skip import skip
from tests.unit.worlds.shard import RECEIVER, ShardWorld, relaxed, strict
from tests.unit.worlds.values import NOW, answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time

HOUR = Retry(max_age_s=3600)


def letters(world: ShardWorld) -> list[tuple[int | None, str]]:
    return [(each.sequence, each.reason) for each in world.dead_letters.buried]


def _more_than(count: int, buried: list[f.Burial]) -> bool:
    return len(buried) > count


async def parked(world: ShardWorld, count: int) -> None:
    """A world in which events wait in the stream alone."""
    world.publish(count)
    await world.until(lambda: len(world.acked) == count)


# ---- of age


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@in_virtual_time
async def test_events_of_a_paused_receiver_expire_in_batches(order: str) -> None:
    world = ShardWorld(policy(paused=True, retry=HOUR, order=order))
    await parked(world, 1000)
    await world.until(lambda: len(world.dead_letters.buried) == 1000, within_s=7200)
    assert letters(world) == [(number, "expired") for number in range(1, 1001)]
    await world.until(lambda: not world.state.parked)
    assert len(world.journal.of(f.DeadLettered)) < 20
    assert len(world.journal.of(f.Buried)) < 20


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@in_virtual_time
async def test_events_expire_while_an_older_node_could_not_read_the_transform(order: str) -> None:
    """The transform is recorded once that node is gone, though nothing else happens to the receiver."""
    world = ShardWorld()
    world.all_know_transforms = False
    world.put(policy(transform=Transform(drop=("/a",)), retry=HOUR, order=order))
    await parked(world, 1000)
    await world.until(lambda: len(world.dead_letters.buried) == 1000, within_s=7200)
    assert letters(world) == [(number, "expired") for number in range(1, 1001)]
    assert not world.sender.made
    await world.until(lambda: not world.state.parked)
    world.all_know_transforms = True
    await world.until(lambda: bool(world.journal.of(f.TransformSet)))


@in_virtual_time
async def test_events_of_a_disabled_receiver_expire_the_one_that_was_tried_first() -> None:
    world = strict(retry=HOUR)
    world.sender.answers(410)
    world.publish(100)
    await world.until(lambda: len(world.dead_letters.buried) == 100, within_s=7200)
    assert letters(world) == [(number, "expired") for number in range(1, 101)]
    assert [each.attempts for each in world.dead_letters.buried[:2]] == [1, 0]
    assert len(world.sender.made) == 1


@in_virtual_time
async def test_only_what_is_old_enough_goes_and_duplicates_get_no_letter() -> None:
    world = strict(paused=True, retry=HOUR)
    world.publish(5)
    world.publish(5, name="same")
    await world.pass_time(1800)
    world.publish(5)
    await world.until(lambda: len(world.dead_letters.buried) == 6, within_s=7200)
    await world.pass_time(600)
    assert letters(world) == [(number, "expired") for number in range(1, 7)]
    world.put(policy(retry=HOUR))
    await world.until_settled(5)
    assert world.sender.numbers == [7, 8, 9, 10, 11]
    assert world.state.counters.duplicates == 4


@in_virtual_time
async def test_each_is_buried_once_despite_any_crash() -> None:
    world = strict(paused=True, retry=HOUR)
    await parked(world, 500)
    for count in range(40, 500, 90):
        await world.until(partial(_more_than, count, world.dead_letters.buried), within_s=7200)
        world.crash()
    await world.until(lambda: not world.state.parked and not world.state.burials)
    assert {each.sequence: each.position for each in world.dead_letters.buried} == {
        number: number for number in range(1, 501)
    }
    assert world.state.counters.dead == 500


# ---- beyond the bound


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@in_virtual_time
async def test_the_oldest_go_when_more_waits_than_may(order: str) -> None:
    world = ShardWorld(policy(paused=True, backlog_max=100, order=order))
    await parked(world, 300)
    await world.until(lambda: len(world.dead_letters.buried) == 200)
    world.publish()
    await world.until(lambda: len(world.dead_letters.buried) == 201)
    await world.pass_time(60)
    assert letters(world) == [(number, "overflow") for number in range(1, 202)]
    world.put(policy(order=order))
    await world.until_settled(100)
    assert sorted(world.sender.positions) == list(range(202, 302))
    assert sorted(filter(None, world.sender.numbers)) == list(range(202, 302))


@in_virtual_time
async def test_events_in_memory_beyond_the_bound_overflow() -> None:
    world = strict(backlog_max=3)
    world.sender.latency_s = 1.5
    world.publish(10)
    await world.until(lambda: world.state.counters.delivered + world.state.counters.dead == 10)
    await world.until(lambda: not world.state.burials)
    assert letters(world) == [(number, "overflow") for number in range(1, 8)]
    assert world.sender.numbers == [8, 9, 10]


@in_virtual_time
async def test_a_new_owner_counts_what_it_finds() -> None:
    world = strict(paused=True, backlog_max=1000)
    await parked(world, 200)
    world.put(policy(paused=True, backlog_max=50))
    world.crash()
    await world.until(lambda: len(world.dead_letters.buried) == 150)
    world.crash()
    world.publish(2)
    await world.until(lambda: world.state.counters.dead == 152)
    await world.pass_time(60)
    assert set(letters(world)) == {(number, "overflow") for number in range(1, 153)}


@in_virtual_time
async def test_an_event_that_arrives_during_a_count_is_not_counted_twice() -> None:
    """The replica that counts already has the new events; a lagging one does not show that they are new."""
    world = strict(paused=True, backlog_max=1000)
    await parked(world, 300)
    world.publish(200, receiver="acme.other")
    await world.until(lambda: len(world.acked) == 500)
    world.put(policy(paused=True, backlog_max=400))
    counted = world.stream.count
    asked: list[int] = []

    async def count(receiver: str, after: int) -> int:
        asked.append(after)
        if len(asked) == 1:
            world.store(80)
            return await counted(receiver, after)
        return 0

    world.stream.count = count  # type: ignore[method-assign]
    world.crash()
    await world.until(lambda: bool(asked))
    await world.pass_time(1)
    world.hand_out()
    await world.pass_time(60)
    assert not [number for number, reason in letters(world) if reason == "overflow"]


@in_virtual_time
async def test_an_unavailable_count_is_retried() -> None:
    world = strict(paused=True, backlog_max=1000)
    await parked(world, 200)
    world.put(policy(paused=True, backlog_max=50))
    world.stream.unavailable = True
    world.crash()
    await world.pass_time(10)
    world.stream.unavailable = False
    await world.until(lambda: len(world.dead_letters.buried) == 150)


@in_virtual_time
async def test_a_receiver_at_its_bound_gives_up_in_batches() -> None:
    world = strict(paused=True, backlog_max=100)
    await parked(world, 100)
    for _ in range(20):
        world.publish(10)
        await world.pass_time(0.05)
    await world.until(lambda: len(world.dead_letters.buried) == 200)
    assert len(world.journal.of(f.DeadLettered)) <= 6


# ---- up to a line


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@in_virtual_time
async def test_everything_up_to_a_line_goes(order: str) -> None:
    world = ShardWorld(policy(order=order))
    world.sender.reply = lambda _: answer(429, retry_after="3600")
    world.publish(300)
    await world.until(lambda: bool(world.state.open) and world.host.shard_unacked.unacked_count == 0)
    world.actor.give_up_to(200, "evicted")
    await world.until(lambda: len(world.dead_letters.buried) == 200)
    await world.pass_time(60)
    assert sorted(letters(world)) == [(number, "evicted") for number in range(1, 201)]
    assert world.state.needed_position == 201
    reads = world.stream.reads
    await world.pass_time(60)
    assert world.stream.reads == reads


@in_virtual_time
async def test_no_event_below_the_horizon_stays_if_there_is_no_room() -> None:
    world = ShardWorld(policy(paused=True))
    world.policies.leader["acme.bad"] = Invalid(problems=("url: missing",))
    world.policies.known["acme.good"] = policy()
    for receiver in ("acme.good", "acme.bad", RECEIVER) * 100:
        world.publish(receiver=receiver)
    await world.pass_time(10)
    assert world.host.needed().position == 1
    world.host.evict("", 151)
    await world.until(lambda: len(world.dead_letters.buried) == 100)
    await world.pass_time(10)
    assert {each.reason for each in world.dead_letters.buried} == {"evicted"}
    assert sorted(each.position for each in world.dead_letters.buried) == [
        each for each in range(1, 151) if each % 3 != 1
    ]
    assert world.host.needed().position > 149


@in_virtual_time
async def test_a_receiver_that_needs_nothing_below_the_horizon_is_left_alone() -> None:
    """The fact that the events are forgotten is not confirmed yet, so the shard still needs them."""
    world = strict(paused=True)
    await parked(world, 5)
    world.journal.hold_at = f.Forgot
    forgetting = asyncio.ensure_future(forget(world.actor))
    await world.until(lambda: world.state.needed_position != 1)
    assert world.host.needed().position == 1
    world.host.evict("", 6)
    await world.pass_time(0.1)
    assert world.actor.cutoff is None
    world.journal.let_go()
    await forgetting


@in_virtual_time
async def test_a_limited_number_of_receivers_comes_into_memory_to_give_its_events_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "COMING_FOR_EVICTION_MAX", 20)
    world = ShardWorld()
    world.snapshots.delay_s = 3600
    for number in range(50):
        receiver = f"acme.r{number}"
        world.policies.known[receiver] = policy(paused=True)
        world.snapshots.held[receiver] = State(receiver=receiver, parked=True, opened=True)
        world.host.note_state(world.snapshots.held[receiver])
    for _ in range(3):
        world.host.evict("acme", 51)
        await world.pass_time(1)
        assert len(world.host.actors) == 20
    await world.pass_time(3600)
    world.host.evict("acme", 51)
    await world.pass_time(1)
    assert len(world.host.actors) == 40


@in_virtual_time
async def test_a_receiver_that_lost_its_configuration_is_evicted_with_its_numbers() -> None:
    world = strict(paused=True)
    world.publish(30)
    await world.until(lambda: world.host.shard_unacked.unacked_count == 0)
    world.policies.leader[RECEIVER] = Invalid(problems=("url: missing",))
    del world.policies.known[RECEIVER]
    world.host.configuration_changed(RECEIVER, None)
    await world.pass_time(1)
    world.host.evict("acme", 11)
    await world.until(lambda: len(world.dead_letters.buried) == 10)
    assert letters(world) == [(number, "evicted") for number in range(1, 11)]
    world.put(policy())
    await world.until_settled(20)
    assert world.sender.numbers[0] == 11


# ---- skip


@in_virtual_time
async def test_the_oldest_event_is_skipped_wherever_it_waits() -> None:
    world = strict(paused=True)
    world.publish(5, name="same")
    world.publish(200)
    await world.until(lambda: len(world.acked) == 205)
    assert [(await skip(world.actor)).position for _ in range(3)] == [1, 6, 7]
    await world.until(lambda: len(world.dead_letters.buried) == 3)
    assert letters(world) == [(1, "skipped"), (2, "skipped"), (3, "skipped")]
    world.put(policy())
    await world.until_settled(198)
    assert world.sender.numbers[0] == 4


@in_virtual_time
async def test_a_skip_awaits_the_attempt_under_way() -> None:
    world = strict(retry=Retry(base_s=60, cap_s=60))
    world.sender.latency_s = 1
    world.sender.answers(500, 200)
    world.publish(3)
    await world.until(lambda: len(world.sender.made) == 1)
    assert (await skip(world.actor)).sequence == 1
    await world.until(lambda: len(world.sender.made) == 2)
    with pytest.raises(ControlDenied, match="settled by the attempt"):
        await skip(world.actor)
    await world.until_settled(2)
    assert letters(world) == [(1, "skipped")]
    assert world.sender.numbers == [1, 2, 3]


@in_virtual_time
async def test_in_relaxed_order_the_oldest_is_skipped_and_the_others_go_on() -> None:
    world = relaxed(retry=Retry(base_s=600, cap_s=600))
    world.sender.reply = lambda attempt: answer(500 if attempt.sequence == 1 else 200)
    world.publish(3)
    await world.until(lambda: world.state.counters.delivered == 2 and bool(world.state.open))
    assert (await skip(world.actor)).sequence == 1
    await world.until(lambda: letters(world) == [(1, "skipped")])


@in_virtual_time
async def test_a_skipped_event_that_comes_back_to_memory_is_not_skipped_again() -> None:
    """The event was being read meanwhile, and is not dropped while the leader is asked."""
    world = strict(paused=True)
    await parked(world, 3)
    world.stream.delay_s = 0.1
    skipping = asyncio.ensure_future(skip(world.actor))
    await world.pass_time(0.05)
    world.put(policy())
    world.policies.unavailable = True
    world.put(None)
    assert world.actor.pending.cursor.reading
    assert (await skipping).position == 1
    await world.until(lambda: not world.actor.pending.cursor.reading)
    assert (await skip(world.actor)).position == 2
    assert world.state.frontier.sequence == 2
    assert not world.refused


@in_virtual_time
async def test_a_duplicate_is_not_skipped_and_takes_no_number() -> None:
    """An owner that vanished may have posted the next event under that number."""
    world = strict()
    world.publish(name="same")
    await world.until_settled(1)
    world.policies.unavailable = True
    world.put(None)
    world.publish(name="same")
    world.publish(name="other")
    skipped = await skip(world.actor)
    assert (skipped.position, skipped.sequence) == (3, 2)


@in_virtual_time
async def test_a_skipped_event_that_is_purged_is_not_missing() -> None:
    """The event was only in the stream when it was skipped, so the receiver must not read it again."""
    world = strict(paused=True)
    await parked(world, 2)
    assert [(await skip(world.actor)).sequence for _ in range(2)] == [1, 2]
    await world.until(lambda: len(world.dead_letters.buried) == 2)
    world.stream.lost = {1, 2}
    world.put(policy())
    await world.until(lambda: not world.state.parked)
    world.publish()
    await world.until_settled(1)
    assert world.sender.numbers == [3]
    assert not world.journal.of(f.Missing)


@in_virtual_time
async def test_a_skip_records_what_is_missing_in_front_of_the_next_event() -> None:
    """An owner that vanished may have posted it, so its number is not given again."""
    world = strict(paused=True)
    await parked(world, 2)
    world.stream.lost = {2}
    assert (await skip(world.actor)).sequence == 1
    with pytest.raises(ControlDenied, match="nothing waiting"):
        await skip(world.actor)
    world.publish()
    assert (await skip(world.actor)).sequence == 3


@in_virtual_time
async def test_there_may_be_nothing_to_skip() -> None:
    world = strict()
    world.publish()
    await world.until_settled(1)
    with pytest.raises(ControlDenied, match="nothing waiting"):
        await skip(world.actor)


# ---- forget


async def forgotten(world: ShardWorld, given: Policy) -> list[int | None]:
    """Forget, publish two more, and say under which numbers they come."""
    made = len(world.sender.made)
    await forget(world.actor)
    world.put(given)
    world.publish(2)
    await world.until(lambda: len(world.sender.made) == made + 2)
    return world.sender.numbers[made:]


@in_virtual_time
async def test_forgotten_events_leave_a_gap_and_no_letters() -> None:
    world = strict(paused=True)
    await parked(world, 200)
    assert await forgotten(world, policy()) == [201, 202]
    assert (world.state.counters.discarded, world.dead_letters.buried) == (200, [])
    await world.until(lambda: not world.state.parked)


@in_virtual_time
async def test_a_forget_clears_failures_and_ends_backoff() -> None:
    world = strict(retry=Retry(base_s=600, cap_s=600))
    world.sender.answers(500)
    world.publish(50)
    await world.until(lambda: world.state.parked)
    assert await forgotten(world, policy()) == [51, 52]
    assert (world.state.failing_since, world.state.counters.discarded) == (None, 50)


@in_virtual_time
async def test_a_pause_that_the_receiver_asked_for_survives_a_forget() -> None:
    world = strict()
    world.sender.answers(answer(429, retry_after="60"))
    world.publish(50)
    await world.until(lambda: world.state.parked)
    await forget(world.actor)
    assert world.state.throttled_until > NOW + 59


@in_virtual_time
async def test_an_attempt_under_way_when_all_is_forgotten_brings_nothing_back() -> None:
    world = strict()
    world.sender.latency_s = 1
    world.sender.answers(500)
    world.publish(10)
    await world.until(lambda: len(world.sender.made) == 1)
    assert await forgotten(world, policy()) == [11, 12]
    assert world.sender.numbers == [1, 11, 12]
    assert world.state.open == ()


@in_virtual_time
async def test_the_gap_contains_everything_that_a_vanished_owner_may_have_posted() -> None:
    """The vanished owner's numbers must not be reused, even if a lagging replica has counted none of them."""
    world = strict()
    world.journal.hold_at = f.Delivered
    world.publish(20)
    await world.until(lambda: len(world.sender.made) == 20)
    world.sender.latency_s = 60
    world.crash()
    world.stream.lost = set(range(1, 21))
    await forget(world.actor)
    assert world.state.frontier.sequence >= 20


@in_virtual_time
async def test_a_receiver_that_continues_during_a_skip_gives_no_number_twice() -> None:
    world = strict(paused=True)
    world.publish(3)
    await world.until(lambda: world.state.parked and not world.host.shard_unacked.unacked_count)
    world.sender.latency_s = 1.0
    world.put(policy())
    assert world.actor.pending.cursor.reading
    await world.pass_time(0.001)  # The skip reads later than the receiver does.
    with pytest.raises(ControlDenied, match="working at this moment"):
        await skip(world.actor)
    await world.until_settled(3)
    assert world.sender.numbers == [1, 2, 3]
