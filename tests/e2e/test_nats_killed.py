"""kill -9 of nats-server at random moments under load: nothing is lost, and nothing repeated either.

The server syncs before each acknowledgement here, so what it acknowledged outlives even the loss of power,
of which kill -9 is the gentler half. The node lives on, and so does what it has not recorded yet: where
nobody else owned its shards meanwhile, it goes on from memory.
"""

import random

import pytest

from tests.e2e.fleet import SHARDS, Fleet
from tests.e2e.load import mixed_load
from tests.e2e.ownership import zombies_wrote


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.soak)])
async def test_every_event_arrives_once_over_kills_of_nats(
    durable_fleet: Fleet, rng: random.Random, rounds: int
) -> None:
    """Every other time NATS stays away until the node's lease is over."""
    fleet = durable_fleet
    load = await mixed_load(fleet)
    node = await fleet.start_ready()
    async with load.flowing():
        for number in range(rounds):
            await load.pass_some(rng)
            lapses = node.times("lease.lapsed")
            await fleet.server.kill()
            if number % 2 == 0:
                await fleet.hears(node, "lease.lapsed", lapses + 1)
            await fleet.server.start()
    load.check()
    await fleet.hears(node, "shard.resumed", SHARDS)
    assert node.times("shard.ended") == 0
    assert not list(zombies_wrote(await fleet.flushes()))
