"""The return of a receiver that was offline: one attempt first, no burst, then more attempts at a time."""

import pytest

from actors.configuration.policy import Offline, Policy, Rate, Retry
from actors.machine import facts as f
from actors.machine.alerts.returning import JITTER_MAX_S, RETURN_MAX_S, width_on_return
from actors.machine.state import Returning
from actors.runtime.operator_actions.resume import resume
from tests.unit.worlds.shard import ShardWorld
from tests.unit.worlds.values import NOW, answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time

RETRY = Retry(base_s=2, cap_s=4)


def wide(*, ping: bool, **members: object) -> Policy:
    return policy(
        **{"order": "relaxed", "concurrency": 64, "retry": RETRY, "offline": Offline(after_s=10, ping=ping)}
        | members
    )


async def returned(given: Policy) -> ShardWorld:
    """A receiver that has just come back, with 300 events that wait; its answers take 100 ms."""
    world = ShardWorld(given)
    world.sender.reply = lambda _: answer(500)
    world.publish(300)
    await world.pass_time(60)
    assert world.state.failing_since is not None
    world.sender.latency_s, world.sender.widest = 0.1, 0
    world.sender.answers()
    await world.until(lambda: world.state.failing_since is None)
    return world


async def width_within(world: ShardWorld, seconds: float) -> int:
    """The largest number of attempts in flight from now on, for so long."""
    world.sender.widest = 0
    await world.pass_time(seconds)
    return world.sender.widest


@pytest.mark.parametrize(("ping", "first"), [(True, 1), (False, 2)])
@in_virtual_time
async def test_attempts_in_flight_double_with_each_round(ping: bool, first: int) -> None:
    """Without a ping the first attempt is the one that succeeded."""
    world = await returned(wide(ping=ping))
    (fact,) = [each for each in world.journal.of(f.Delivered) if each.returns_at] or [world.state.last]
    await world.pass_time(fact.returns_at - world.clock.now() + 0.001)
    width = first
    while width < 64:
        assert await width_within(world, 0.1) == width
        width *= 2
    assert await width_within(world, 0.25) == 64


@in_virtual_time
async def test_a_failure_lets_its_round_begin_again() -> None:
    world = await returned(wide(ping=True))
    await world.until(lambda: len(world.sender.in_flight.get("acme.billing", ())) == 4)
    world.sender.answers(200, 500, 500, 500)
    await world.pass_time(0.11)
    assert world.state.returning is not None
    assert world.state.returning.successes == 3
    assert len(world.sender.in_flight.get("acme.billing", ())) == 4


@in_virtual_time
async def test_the_bound_ends_with_time_though_attempts_fail() -> None:
    world = await returned(wide(ping=True, retry=Retry(base_s=0.05, cap_s=0.1)))
    world.sender.reply = lambda made: answer(500 if made.ordinal + made.event.position % 3 < 4 else 200)
    await world.pass_time(RETURN_MAX_S + JITTER_MAX_S)
    world.sender.answers()
    world.publish(200)
    assert await width_within(world, 1) == 64


def test_the_bound_ends_with_time_though_nothing_was_sent() -> None:
    returning = Returning(begins_at=NOW)
    assert width_on_return(returning, 64, NOW + RETURN_MAX_S - 1) == 1
    assert width_on_return(returning, 64, NOW + RETURN_MAX_S) == 64


@in_virtual_time
async def test_a_resume_ends_the_bound() -> None:
    world = await returned(wide(ping=True))
    assert world.state.returning is not None
    await resume(world.actor)
    assert world.state.returning is None


@pytest.mark.parametrize("snapshots", [False, True])
@in_virtual_time
async def test_a_takeover_continues_with_the_return(snapshots: bool) -> None:
    world = await returned(wide(ping=True))
    await world.until(lambda: len(world.sender.in_flight.get("acme.billing", ())) == 4)
    await world.pass_time(0.3)
    known = world.journal.folded["acme.billing"].returning
    world.crash(snapshots=snapshots)
    assert known is not None
    assert known.successes < 32
    await world.until(lambda: bool(world.sender.in_flight.get("acme.billing", ())))
    assert await width_within(world, 0.05) <= 2 * known.successes + 2


@pytest.mark.parametrize("ping", [False, True])
@in_virtual_time
async def test_saved_tokens_make_no_burst(ping: bool) -> None:
    world = await returned(wide(ping=ping, rate=Rate(limit=2, burst=50), retry=Retry(base_s=20, cap_s=20)))
    begun = len(world.sender.times)
    await world.pass_time(10)
    assert 14 <= len(world.sender.times) - begun <= 20


@in_virtual_time
async def test_the_moment_of_the_return_is_the_receivers_own() -> None:
    moments = [await own_moment(name) for name in ("acme.a", "acme.b", "acme.c")]
    assert len(set(moments)) == 3
    assert all(0 <= each < JITTER_MAX_S for each in moments)


async def own_moment(name: str) -> float:
    """The time from the success of a receiver with this name to its events."""
    world = ShardWorld()
    world.put(policy(retry=RETRY, offline=Offline(after_s=10, ping=True)), name)
    world.sender.reply = lambda _: answer(500)
    world.publish(receiver=name)
    await world.pass_time(60)
    world.sender.answers()
    await world.until(lambda: bool(world.journal.of(f.Delivered)))
    fact: f.Delivered = world.journal.of(f.Delivered)[0]
    return round(fact.returns_at - fact.at, 6)


@in_virtual_time
async def test_a_receiver_that_was_not_offline_is_not_slowed() -> None:
    world = ShardWorld(wide(ping=True, offline=Offline(after_s=300, ping=True)))
    world.sender.answers(*[500] * 20)
    world.publish(300)
    await world.until(lambda: world.state.counters.delivered > 0)
    assert world.state.returning is None
    world.sender.latency_s = 0.1
    assert await width_within(world, 1) == 64
