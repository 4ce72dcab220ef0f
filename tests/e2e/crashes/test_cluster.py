"""Three nats-servers; the important ones are killed with kill -9 under load.

Each stream has a replica on each server, so none of them holds anything alone; nodes and consumers do hang on
one server at a time.
"""

import random
import time

import pytest

from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.load import mixed_load
from tests.support.fleet.ownership import zombies_wrote

GOES_ON_WITHIN_S = 5.0
"""Time after the last election until each receiver is sent something; nats-server elects within 9 s or so."""


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.parametrize("stream", [names.deliveries, names.journal, names.actors, names.nodes])
async def test_the_leader_of_a_stream_is_killed(
    replicated_fleet: Fleet, rng: random.Random, stream: str
) -> None:
    fleet = replicated_fleet
    load = await mixed_load(fleet)
    node = await fleet.start_ready()
    async with load.flowing():
        await load.pass_some(rng)
        leader = await fleet.leader(stream)
        await leader.kill()
        await fleet.elected(leader)
        elected_at = time.monotonic()
        await fleet.until(
            lambda: all(record.arrivals and record.arrivals[-1].at > elected_at for record in load.records),
            "each receiver is sent something after the last election",
        )
        went_on_at = time.monotonic()
        print(f"went on {went_on_at - elected_at:.1f} s after the last election")
        assert went_on_at - elected_at < GOES_ON_WITHIN_S
        await load.pass_some(rng)
        await leader.start()
        await load.pass_some(rng)
    load.check()
    assert node.times("shard.ended") == 0
    assert not list(zombies_wrote(await fleet.flushes()))
