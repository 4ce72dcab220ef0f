"""Events for all subscribers, over the death of their router: each once, in its producer's order."""

import asyncio
import random
import time

import msgspec
import pytest

from tests.support.fleet.fanout import announce, fanout, nearly_full
from tests.support.fleet.fleet import SHARDS, Fleet, names
from tests.support.fleet.ownership import zombies_posted, zombies_wrote
from tests.support.processes.nodes import needs_proc


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.soak)])
async def test_every_subscriber_gets_every_event_despite_kills_of_the_node(
    fleet: Fleet, rng: random.Random, rounds: int
) -> None:
    load = await fanout(fleet)
    node = await fleet.start_ready()
    crashes_at = []
    async with load.flowing():
        for number in range(rounds):
            if number % 4 == 1:
                await fleet.hears(node, "shard.claimed", rng.randint(1, SHARDS))
            else:
                await load.pass_some(rng)
            await node.kill()
            crashes_at.append(time.monotonic())
            await node.start()
    await load.tell_repeats()
    load.check(crashes_at)


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.soak)])
async def test_every_subscriber_gets_every_event_once_despite_kills_of_nats(
    durable_fleet: Fleet, rng: random.Random, rounds: int
) -> None:
    """Every other time NATS stays away until the lease is over, and the routers with it."""
    fleet = durable_fleet
    load = await fanout(fleet)
    node = await fleet.start_ready()
    await load.despite_kills_of_nats(rng, node, rounds)
    await load.tell_repeats()
    load.check()


async def test_copies_that_are_refused_half_way_arrive_in_order_when_there_is_room(
    fleet: Fleet, rng: random.Random
) -> None:
    """Some copies of an event are stored and others refused when the router is killed."""
    load = await fanout(fleet)
    node = await fleet.start_ready()
    crashes_at = []
    async with load.flowing():
        await load.pass_some(rng)
        async with nearly_full(fleet, room=rng.randint(1, 50)):
            await fleet.hears(node, "routing.waiting")
            await node.kill()
            crashes_at.append(time.monotonic())
            await node.start()
            await fleet.hears(node, "routing.waiting")
        await load.pass_some(rng)
    await load.tell_repeats()
    load.check(crashes_at)


@pytest.mark.parametrize("away_s", [0.0, pytest.param(180.0, marks=pytest.mark.soak)])
async def test_unacked_events_are_routed_once_over_any_absence_of_nats(
    durable_fleet: Fleet, rng: random.Random, away_s: float
) -> None:
    """At least until the lease is over. Some of their copies are stored, of others it is unknown."""
    fleet = durable_fleet
    load = await fanout(fleet)
    node = await fleet.start_ready()
    async with load.flowing():
        await load.pass_some(rng)
        async with nearly_full(fleet, room=rng.randint(1, 50)):
            await fleet.hears(node, "routing.waiting")
            await fleet.server.kill()
            await fleet.hears(node, "lease.lapsed")
            await asyncio.sleep(away_s)
            await fleet.server.start()
            await fleet.until(lambda: fleet.js.wire.is_connected, "we are connected again")
        await load.pass_some(rng)
    await load.tell_repeats()
    load.check()


@pytest.mark.soak
@needs_proc
async def test_a_router_that_slept_beyond_its_lease_does_no_harm(fleet: Fleet, rng: random.Random) -> None:
    """The router wakes with copies in flight of events that its successor routed long ago."""
    load = await fanout(fleet)
    sleeper = await fleet.start_ready("sleeper")
    async with load.flowing():
        await fleet.start_ready("heir")
        await fleet.until_true(lambda: fleet.owns("sleeper"), "the sleeper owns shards")
        await load.pass_some(rng)
        sleeper.sleep()
        slept_at = time.monotonic()
        await fleet.until_true(lambda: fleet.owns_all("heir"), "the heir owns every shard")
        await load.pass_some(rng)
        sleeper.wake()
        await fleet.hears(sleeper, "lease.lapsed")
        await load.pass_some(rng)
    await load.tell_repeats()
    load.check([slept_at])
    flushes = await fleet.flushes()
    assert list(zombies_wrote(flushes)) == []
    assert list(zombies_posted(fleet.arrivals(), flushes, fleet.sink.late_s)) == []


@pytest.mark.soak
async def test_a_handover_repeats_nothing(fleet: Fleet, rng: random.Random) -> None:
    load = await fanout(fleet)
    await fleet.start_ready("one")
    async with load.flowing():
        await load.pass_some(rng)
        await fleet.start_ready("two")
        await load.pass_some(rng)
        await fleet.nodes["one"].stop()
        await load.pass_some(rng)
    await load.tell_repeats()
    load.check()


async def test_the_metrics_count_routed_events(fleet: Fleet) -> None:
    await fleet.configure(["t.all"], events=[">"])
    await fleet.configure(["t.some"], events=["order.*"])
    await fleet.configure(["u.some"], events=["order.*"])
    await fleet.start_ready()
    for number, subject in enumerate(("t.order.new", "t.user.new", "u.user.new", "t.angarium.forged")):
        await announce(fleet.js, subject, f"e{number}")

    async def told() -> bool:
        answer = await fleet.js.request("$SRV.STATS.angarium", b"")
        data = msgspec.json.decode(answer.data)["endpoints"][0]["data"]
        return [data[name] for name in ("events", "copies", "unmatched", "malformed")] == [4, 3, 1, 1]

    await fleet.until_true(told, "the node tells of them")
    await fleet.until(lambda: fleet.sink.total == 3, "each copy came")

    async def buried() -> bool:
        return len(await fleet.read(names.dead_letters, names.dead("t._events"))) == 1

    await fleet.until_true(buried, "what nobody may publish is a dead letter")


async def test_an_event_right_after_a_subscription_is_routed_by_it(fleet: Fleet) -> None:
    """The change takes up to a second; the contract promises nothing faster."""
    await fleet.start_ready()
    receivers, arrivals = ("t.r0", "t.r1"), fleet.sink.arrivals
    copies = 0
    for number, receiver in enumerate(receivers):
        await fleet.configure([receiver])
        await asyncio.sleep(1.01)
        copies += number + 1
        await announce(fleet.js, "t.a", f"e{number}")
        await fleet.until(lambda: fleet.sink.total >= copies, f"e{number} came")  # noqa: B023
    got = [[each.event_id for each in arrivals[receiver]] for receiver in receivers]
    assert got == [["e0", "e1"], ["e1"]]
