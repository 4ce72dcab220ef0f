"""kill -9 of the node and of nats-server while events become due: each gets one number, and comes in time."""

import random
import time

import pytest

from actors.times_as_text import instant_text
from streams.nats.answers import Stored
from tests.support.fleet.fleet import Fleet

RECEIVER = "t.later"
EVENTS = 200
SPAN_S = 6.0
CLOCKS_S = 0.05


async def publish_spread(fleet: Fleet, rng: random.Random) -> dict[str, float]:
    """Publish events that are due within some seconds; returns their times by id."""
    due = dict[str, float]()
    for number in range(EVENTS):
        at, event = time.time() + 1.0 + rng.random() * SPAN_S, f"later:{number}"
        headers = {"Angarium-Deliver-At": instant_text(at), "Nats-Msg-Id": event}
        assert isinstance(await fleet.js.publish("angarium.events.t.a", b"{}", headers), Stored)
        due[event] = at
    return due


async def some_arrived(fleet: Fleet, rng: random.Random, share: float) -> None:
    """Return in the middle of what becomes due."""
    wanted = round(share * EVENTS) + rng.randrange(10)
    await fleet.until(lambda: len(fleet.sink.arrivals[RECEIVER]) >= wanted, f"{wanted} attempts were made")


async def check(fleet: Fleet, due: dict[str, float]) -> None:
    """Each event came after its time, and has one number; no number is left out."""
    seen, to_wall = fleet.sink.arrivals[RECEIVER], time.time() - time.monotonic()
    await fleet.until(lambda: {each.event_id for each in seen} == due.keys(), "all events arrived")
    assert [each.event_id for each in seen if each.at + to_wall < due[each.event_id] - CLOCKS_S] == []
    numbers = {(each.event_id, each.sequence) for each in seen}
    assert sorted(number for _, number in numbers) == list(range(1, EVENTS + 1))


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.soak)])
async def test_each_event_comes_once_despite_kills_of_the_node(
    fleet: Fleet, rng: random.Random, rounds: int
) -> None:
    await fleet.configure([RECEIVER])
    node = await fleet.start_ready()
    due = await publish_spread(fleet, rng)
    for number in range(rounds):
        await some_arrived(fleet, rng, number / (rounds + 1))
        await node.kill()
        await node.start()
    await check(fleet, due)


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.soak)])
async def test_each_event_comes_once_despite_kills_of_nats(
    durable_fleet: Fleet, rng: random.Random, rounds: int
) -> None:
    fleet = durable_fleet
    await fleet.configure([RECEIVER])
    await fleet.start_ready()
    due = await publish_spread(fleet, rng)
    for number in range(rounds):
        await some_arrived(fleet, rng, number / (rounds + 1))
        await fleet.server.kill()
        await fleet.server.start()
    await check(fleet, due)


async def test_each_event_comes_once_despite_the_death_of_the_leader(
    replicated_fleet: Fleet, rng: random.Random
) -> None:
    fleet = replicated_fleet
    await fleet.configure([RECEIVER])
    await fleet.start_ready()
    due = await publish_spread(fleet, rng)
    await some_arrived(fleet, rng, 0.3)
    leader = await fleet.leader("ANGARIUM_LATER")
    await leader.kill()
    await fleet.elected(leader)
    await leader.start()
    await check(fleet, due)
