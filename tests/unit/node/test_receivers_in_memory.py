"""Receivers at a scrape: only those that exist have a phase, and one whose attempt is overdue is late."""

from collections.abc import Callable

import pytest

from actors.configuration.policy import Rate
from actors.errors import Unavailable
from actors.machine.state import State
from angarium.node.metrics.receivers_in_memory import ReceiversInMemory
from tests.unit.worlds.shard import RECEIVER, ShardWorld, relaxed, strict
from tests.unit.worlds.values import answer
from tests.unit.worlds.virtual_time import in_virtual_time

WORLDS = (strict, relaxed)


def seen(world: ShardWorld, exists: Callable[[str], bool] = lambda _: True) -> ReceiversInMemory:
    found = ReceiversInMemory(exists)
    found.add(world.host)
    return found


@in_virtual_time
async def test_a_removed_receiver_is_not_counted_and_not_misconfigured() -> None:
    """The actor stays in memory for a while, and comes back with each request that names it."""
    world = strict()
    world.publish()
    await world.until_settled(1)
    world.put(None)
    await world.pass_time(5)
    await world.host.residents.when_loaded(RECEIVER)
    found = seen(world, exists=world.policies.known.__contains__)
    world.host.stop()
    assert (found.actors, dict(found.held)) == (0, {})


@in_virtual_time
async def test_a_receiver_without_a_valid_configuration_is_misconfigured() -> None:
    world = ShardWorld()
    await world.host.residents.when_loaded(RECEIVER)
    found = seen(world)
    world.host.stop()
    assert (found.actors, dict(found.held)) == (1, {("acme", "misconfigured"): 1})


@in_virtual_time
@pytest.mark.parametrize("make", WORLDS)
async def test_an_attempt_that_is_overdue_makes_its_receiver_late(make: Callable[[], ShardWorld]) -> None:
    """The journal confirms nothing, so no attempt may start."""
    world = make()
    world.journal.is_stalled = True
    world.publish(3)
    await world.pass_time(59)
    assert seen(world).late == 0
    await world.pass_time(2)
    assert seen(world).late == 1
    world.journal.is_stalled = False
    world.host.residents.wake_all()
    await world.until_settled(3)
    assert seen(world).late == 0
    world.host.stop()


@in_virtual_time
async def test_an_attempt_is_overdue_a_minute_after_its_shard_was_claimed_at_the_earliest() -> None:
    world = strict()
    world.journal.is_stalled = True
    world.publish(3)
    await world.pass_time(61)
    world.crash()
    world.journal.is_stalled = True
    world.hand_out()
    await world.pass_time(50)
    assert (seen(world).waiting, seen(world).late) == (3, 0)
    await world.pass_time(20)
    assert seen(world).late == 1
    world.host.stop()


@in_virtual_time
@pytest.mark.parametrize("make", WORLDS)
async def test_a_receiver_that_is_held_back_is_not_late(make: Callable[..., ShardWorld]) -> None:
    """A pause, its rate, backoff, its own request and a slow answer hold it back."""
    paused, limited = make(paused=True), make(rate=Rate(limit=1, per="hour", burst=1))
    failing, throttled, slow = make(), make(), make()
    failing.sender.reply = lambda _: answer(500)
    throttled.sender.reply = lambda _: answer(429, retry_after="7200")
    slow.sender.latency_s = 10_000.0
    worlds = (paused, limited, failing, throttled, slow)
    for world in worlds:
        world.publish(5)
    for _ in range(20):
        await worlds[0].pass_time(60)
        assert [seen(world).late for world in worlds] == [0] * len(worlds)
    assert [dict(seen(world).held) for world in (paused, throttled)] == [
        {("acme", "paused"): 1}, {("acme", "throttled"): 1}
    ]  # fmt: skip
    assert seen(limited).fills == {"empty": 1}
    for world in worlds:
        world.host.stop()


@in_virtual_time
async def test_a_receiver_that_waits_for_its_turn_at_a_host_is_not_late() -> None:
    world = strict()
    world.down_hosts.count = 1
    world.publish(3)
    await world.pass_time(200)
    assert (world.sender.made, seen(world).late) == ([], 0)
    world.down_hosts.count = 0
    await world.pass_time(200)
    assert seen(world).late == 1  # It was not woken.
    world.host.stop()


@in_virtual_time
async def test_a_parked_receiver_that_does_not_come_back_after_a_takeover_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def load(receiver: str, due: float) -> State | None:
        raise Unavailable("no leader")

    world = strict()
    monkeypatch.setattr(world.snapshots, "load", load)
    world.host.residents.start([], {RECEIVER: 0.0, "acme.paused": None})
    await world.pass_time(59)
    assert seen(world).late == 0
    await world.pass_time(2)
    assert seen(world).late == 1
    world.host.stop()


@in_virtual_time
async def test_the_backlog_is_what_waits_and_what_is_in_flight() -> None:
    world = strict()
    world.sender.latency_s = 1000.0
    world.publish(300)
    await world.pass_time(10)
    found = seen(world)
    world.host.stop()
    assert (found.backlogs, found.in_flight, found.waiting) == ({RECEIVER: 300}, 1, 299)
    assert found.ages_s == {RECEIVER: pytest.approx(10.0, abs=0.1)}
