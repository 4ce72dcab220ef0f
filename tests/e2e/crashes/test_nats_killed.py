"""kill -9 of nats-server at random moments under load: nothing is lost and nothing repeated.

The server syncs before each acknowledgement here, so what it acknowledged outlives even the loss of power,
of which kill -9 is the gentler half. The node lives on, and so does what it has not recorded yet: if
no other node owned its shards meanwhile, it goes on from memory.
"""

import random

import pytest

from tests.support.fleet.fleet import SHARDS, Fleet
from tests.support.fleet.load import mixed_load
from tests.support.fleet.ownership import zombies_wrote


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.soak)])
async def test_every_event_arrives_once_despite_kills_of_nats(
    durable_fleet: Fleet, rng: random.Random, rounds: int
) -> None:
    """Every other time NATS stays away until the node's lease is over."""
    fleet = durable_fleet
    load = await mixed_load(fleet)
    node = await fleet.start_ready()
    await load.despite_kills_of_nats(rng, node, rounds)
    load.check()
    await fleet.hears(node, "shard.resumed", SHARDS)
    assert node.times("shard.ended") == 0
    assert not list(zombies_wrote(await fleet.flushes()))
