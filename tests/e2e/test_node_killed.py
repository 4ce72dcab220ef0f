"""kill -9 of the node at random moments under load, and what the receivers have to say to that."""

import random
import time

import pytest

from tests.e2e.fleet import SHARDS, Fleet
from tests.e2e.load import mixed_load


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.soak)])
async def test_every_event_arrives_over_kills_of_the_node(
    fleet: Fleet, rng: random.Random, rounds: int
) -> None:
    """Now and then the process that takes over is killed as well, between its first shard and its last."""
    load = await mixed_load(fleet)
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
    load.check(crashes_at)
