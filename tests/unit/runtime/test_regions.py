"""Events of another region: their owner records that it discards them, without an attempt, under a number."""

from typing import Any

import pytest

from actors.configuration.policy import BatchLimits, Retry
from actors.machine import facts as f
from tests.unit.worlds.shard import ShardWorld, relaxed, strict
from tests.unit.worlds.values import answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time

QUICK = Retry(base_s=0.05, cap_s=0.05)


def world_of(order: str = "strict", **members: Any) -> ShardWorld:
    return (strict if order == "strict" else relaxed)(**{"region": ("eu", "us"), "retry": QUICK} | members)


def published(world: ShardWorld, *regions: str) -> None:
    """Publish an event of each region; all of them come together."""
    for region in regions:
        world.store(region=region)
    world.hand_out()


def discarded(world: ShardWorld) -> list[int]:
    """The numbers that were given up for their region."""
    facts = world.journal.of(f.DeadLettered)
    assert {each.reason for each in facts} <= {"region"}
    return [event.sequence for each in facts for event in each.events]


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@in_virtual_time
async def test_an_event_of_another_region_is_discarded_and_keeps_its_number(order: str) -> None:
    world = world_of(order)
    published(world, "eu", "asia", "asia", "", "us")
    await world.until(lambda: world.state.settled_sequence == 5)
    assert discarded(world) == [2, 3]
    assert world.sender.numbers == [1, 4, 5]
    counters = world.state.counters
    assert (counters.delivered, counters.discarded, counters.dead) == (3, 2, 0)
    assert not world.state.burials
    assert not world.dead_letters.buried


@in_virtual_time
async def test_a_receiver_without_regions_gets_events_of_all() -> None:
    world = world_of(region=())
    published(world, "asia")
    await world.until_settled(1)
    assert world.sender.numbers == [1]


@in_virtual_time
async def test_events_of_another_region_raise_no_alert() -> None:
    world = world_of()
    published(world, "asia")
    await world.until(lambda: world.state.settled_sequence == 1)
    assert world.state.dead_letter_at == 0.0


@in_virtual_time
async def test_a_waiting_event_of_another_region_is_discarded_while_its_receiver_is_paused() -> None:
    world = world_of(paused=True)
    published(world, "asia")
    await world.until(lambda: world.state.settled_sequence == 1, within_s=1)
    assert discarded(world) == [1]


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@in_virtual_time
async def test_no_batch_has_an_event_of_another_region(order: str) -> None:
    world = world_of(order, batch=BatchLimits(max_events=10))
    published(world, "eu", "us", "asia", "eu", "asia", "")
    await world.until(lambda: world.state.settled_sequence == 6)
    assert discarded(world) == [3, 5]
    assert [each.sequences for each in world.sender.batches] == [(1, 2), (4,), (6,)]


@in_virtual_time
async def test_a_batch_before_an_event_of_another_region_cannot_grow_and_does_not_linger() -> None:
    world = world_of(batch=BatchLimits(max_events=9, linger_s=30.0))
    published(world, "eu", "asia")
    await world.until(lambda: world.state.settled_sequence == 2)
    assert world.sender.times[0] < 1.0


@pytest.mark.parametrize("order", ["strict", "relaxed"])
@in_virtual_time
async def test_a_failed_batch_loses_the_events_of_a_region_that_was_taken_away(order: str) -> None:
    limits = BatchLimits(max_events=10)
    world = world_of(order, batch=limits)
    world.sender.reply_to_batch = lambda attempt: answer(500)
    published(world, "eu", "us", "eu")
    await world.until(lambda: [each.attempts for each in world.state.open] == [1, 1, 1])
    world.sender.reply_to_batch = lambda attempt: answer(200)
    world.put(policy(region=("us",), batch=limits, retry=QUICK, order=order))
    await world.until(lambda: world.journal.folded["acme.billing"].settled_sequence == 3)
    assert {each.sequences for each in world.sender.batches} == {(1, 2, 3), (2,)}
    assert discarded(world) == [1, 3]
