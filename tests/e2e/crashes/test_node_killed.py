"""kill -9 of the node at random moments under load, as the receivers see it."""

import random
import time

import pytest

from tests.support.fleet.fleet import SHARDS, Fleet
from tests.support.fleet.load import Load, configure_relaxed, mixed_load

HOT, WIDE = "t.hot", "t.wide"
BEHIND = 600


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.soak)])
async def test_every_event_arrives_despite_kills_of_the_node(
    fleet: Fleet, rng: random.Random, rounds: int
) -> None:
    """A strict receiver and a relaxed one are being drained whenever the node dies, so that as much is
    unrecorded as there may be.

    The relaxed one is strict every other time. Now and then the process that takes over is killed as well,
    between its first shard and its last.
    """
    await fleet.configure([HOT])
    await configure_relaxed(fleet, [WIDE])
    load, hot = await mixed_load(fleet), Load(fleet, [HOT, WIDE], [WIDE])
    await hot.publish(BEHIND)
    node = await fleet.start()
    crashes_at = []
    async with load.flowing():
        for number in range(rounds):
            if number % 4 == 1:
                await fleet.hears(node, "shard.claimed", rng.randint(1, SHARDS))
            else:
                await in_the_middle_of_a_drain(fleet, rng)
            await node.kill()
            crashes_at.append(time.monotonic())
            await hot.publish(BEHIND)
            await (configure_relaxed if number % 2 else Fleet.configure)(fleet, [WIDE])
            await node.start()
    await hot.arrived()
    for each in (load, hot):
        each.check(crashes_at)


async def in_the_middle_of_a_drain(fleet: Fleet, rng: random.Random) -> None:
    """Some time before all have arrived that were published while there was no node."""
    seen, more = fleet.sink.arrivals[HOT], rng.randrange(BEHIND)
    moment = len(seen) + more
    await fleet.until(lambda: len(seen) >= moment, f"{more} more events arrived")
