"""Events for unknown receivers: how many are turned away at once, how soon, why, and which are discarded."""

from collections.abc import Mapping, Sequence

import pytest

from actors.machine import facts as f
from actors.machine.facts import Burial
from actors.runtime.unknown_receivers import decision_rounds
from actors.runtime.unknown_receivers.decision_rounds import DISCARD_AFTER_S, ROUND_OFFSETS, ROUND_PAUSE_S
from tests.unit.worlds.shard import ShardWorld, strict
from tests.unit.worlds.unknown import UNKNOWN, all_buried, flood, hold_burials
from tests.unit.worlds.values import policy
from tests.unit.worlds.virtual_time import in_virtual_time


def delay_burials(world: ShardWorld, seconds: float) -> list[int]:
    """Each takes so long; returns where their sizes are noted."""
    bury, sizes = world.dead_letters.bury, list[int]()

    async def slowly(receiver: str, burials: Sequence[Burial], answers: Mapping[int, str]) -> None:
        sizes.append(len(burials))
        await world.pass_time(seconds)
        await bury(receiver, burials, answers)

    world.dead_letters.bury = slowly  # type: ignore[method-assign]
    return sizes


def discarded(world: ShardWorld) -> list[int]:
    """The number of events that were discarded at each time."""
    return [len(each.events) for each in world.journal.of(f.TurnedAway) if each.discarded]


@in_virtual_time
async def test_at_most_64_events_are_turned_away_at_once() -> None:
    """A fact has to fit into a flush, whatever the names; a burial holds others up."""
    world = ShardWorld()
    release = await hold_burials(world)
    flood(world, 300)
    await world.pass_time(3)
    assert [len(each.events) for each in world.journal.of(f.TurnedAway)] == [64, 64]
    world.crash()
    release()
    sizes = delay_burials(world, 0.3)
    await all_buried(world, 300)
    assert max(sizes) == 64


@in_virtual_time
async def test_a_limited_number_of_events_is_discarded_at_once() -> None:
    world = ShardWorld(policy(), unacked_max=100)
    await hold_burials(world)
    flood(world, 500)
    await world.pass_time(DISCARD_AFTER_S + 10)
    assert sum(discarded(world)) == 500 - 128 - 50 - 1
    assert max(discarded(world)) == 64


@in_virtual_time
async def test_many_are_turned_away_without_a_pause() -> None:
    world = ShardWorld()
    flood(world, 1000)
    await world.until(lambda: len(world.dead_letters.buried) == 1000, within_s=5)


@in_virtual_time
async def test_a_few_that_only_the_stream_knows_are_turned_away_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decision_rounds, "READS_A_ROUND", 1)
    world = strict()
    world.policies.unavailable = True
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 1)
    world.publish(5000)
    await world.until(lambda: world.journal.floor == 5001)
    flood(world, 1)
    await world.until(lambda: world.journal.floor == 5002)
    world.crash()
    world.policies.unavailable = False
    await world.until(lambda: len(world.dead_letters.buried) == 2, within_s=5)


@in_virtual_time
async def test_the_reason_is_its_own() -> None:
    world = ShardWorld()
    world.policies.unavailable = True
    world.publish(5, receiver=UNKNOWN)
    world.publish(receiver=UNKNOWN, malformed="no name")
    await world.until(lambda: world.journal.floor == 6)
    world.journal.append()
    world.host.evict("", 3)
    await world.until(lambda: len(world.dead_letters.buried) == 2)
    world.policies.unavailable = False
    await all_buried(world, 6)
    assert [each.reason for each in world.dead_letters.buried] == [
        *["evicted"] * 2, *["unknown_receiver"] * 3, "malformed"
    ]  # fmt: skip


@in_virtual_time
async def test_a_slow_burial_after_the_other_discards_none() -> None:
    world = ShardWorld(policy(), unacked_max=100)
    delay_burials(world, DISCARD_AFTER_S / 2)
    flood(world, 500)
    await all_buried(world, 500)
    assert discarded(world) == []


@in_virtual_time
async def test_a_long_silence_before_a_flood_discards_none() -> None:
    """No burial was waiting, so none could succeed."""
    world = ShardWorld(policy(), unacked_max=100)
    flood(world, 1)
    await all_buried(world, 1)
    world.journal.hold_at = f.TurnedAway
    await world.pass_time(2 * DISCARD_AFTER_S)
    flood(world, 500)
    await world.pass_time(1)
    world.journal.let_go()
    await all_buried(world, 501)
    assert discarded(world) == []


@in_virtual_time
async def test_configurations_that_the_leader_did_not_confirm_discard_none() -> None:
    world = ShardWorld(policy(), unacked_max=100)
    world.policies.unavailable = True
    flood(world, 500)
    await world.pass_time(2 * DISCARD_AFTER_S)
    world.policies.unavailable = False
    await all_buried(world, 500)
    assert discarded(world) == []


@in_virtual_time
async def test_a_takeover_discards_none() -> None:
    """The next owner gives the dead letters as long as the one before."""
    world = ShardWorld(policy(), unacked_max=100)
    await hold_burials(world)
    flood(world, 500)
    await world.pass_time(DISCARD_AFTER_S / 2)
    world.crash()
    await world.pass_time(DISCARD_AFTER_S * 0.8)
    assert discarded(world) == []


@in_virtual_time
async def test_shards_that_a_flood_reaches_at_once_turn_away_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If all did so at once, their facts and burials would delay events for known receivers."""
    rounds = {epoch: await _rounds_of(epoch, monkeypatch) for epoch in (1, 17, 40, 64)}
    for epoch, at in rounds.items():
        phases = [(each - epoch / ROUND_OFFSETS) % ROUND_PAUSE_S for each in at]
        assert len(at) >= 4
        assert max(phases) < 0.01


async def _rounds_of(epoch: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times of a shard's rounds with that epoch in a flood, except the first, which waits for none."""
    world = ShardWorld()
    world.epoch = epoch - 1
    world.crash()
    at = list[float]()
    catch_up = world.policies.catch_up

    async def noted() -> None:
        at.append(world.clock.now())
        await catch_up()

    monkeypatch.setattr(world.policies, "catch_up", noted)
    for number in range(60):
        world.publish(receiver=f"acme.x{number}")
        await world.pass_time(0.1)
    world.host.stop()
    return at[1:]
