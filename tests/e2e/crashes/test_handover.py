"""Nodes that start and stop in order, under load: nothing is repeated or lost, and each gets its share."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streams.fleet.rendezvous import wanted_shards
from tests.support.fleet.fleet import SHARDS, Fleet, open_fleet, shard
from tests.support.fleet.load import RECEIVERS, mixed_load, publish
from tests.support.fleet.ownership import zombies_posted, zombies_wrote
from tests.support.fleet.sink import Hang, Reply
from tests.support.processes.nodes import LONG_TTL_S, needs_proc


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with open_fleet(tmp_path, ttl_s=LONG_TTL_S) as fleet:
        yield fleet


@needs_proc
@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.soak)])
async def test_shards_move_with_their_work_as_nodes_come_and_go(
    fleet: Fleet, rng: random.Random, rounds: int
) -> None:
    """A second node takes its share, then everything when the first one leaves; then that one returns."""
    load = await mixed_load(fleet)
    staying, coming = "one", "two"
    await fleet.start_ready(staying)
    async with load.flowing():
        for _ in range(rounds):
            await load.pass_some(rng)
            await fleet.start_ready(coming)
            await shared_out(fleet, staying, coming)
            await load.pass_some(rng)
            await fleet.nodes[staying].stop()
            await shared_out(fleet, coming)
            staying, coming = coming, staying
        await load.pass_some(rng)
    load.check()
    flushes = await fleet.flushes()
    assert not list(zombies_wrote(flushes))
    assert not list(zombies_posted(fleet.arrivals(), flushes, fleet.sink.late_s))


@needs_proc
async def test_an_attempt_that_takes_too_long_holds_no_shard_back(fleet: Fleet) -> None:
    """The attempt is given up when the shard's new owner joins, which repeats it under the same number."""
    receiver = next(each for each in RECEIVERS if shard(each) in wanted_shards(SHARDS, "two", ["one", "two"]))
    fleet.sink.manners[receiver] = lambda number: Hang() if number == 1 else Reply()
    await fleet.configure([receiver], timeout_s=60)
    await fleet.start_ready("one")
    await publish(fleet.js, receiver, "taking-long")
    seen = fleet.sink.arrivals[receiver]
    await fleet.until(lambda: len(seen) == 1, "the attempt has begun")
    await fleet.start_ready("two")
    await fleet.until(lambda: len(seen) == 2, "it was made again")
    assert [(each.sequence, each.attempt, each.by) for each in seen] == [(1, 1, "one"), (1, 1, "two")]


async def shared_out(fleet: Fleet, *nodes: str) -> None:
    """Return when each node owns what rendezvous hashing gives it."""
    fair = {number: node for node in nodes for number in wanted_shards(SHARDS, node, nodes)}
    await fleet.until_true(lambda: owned_by(fleet, fair), f"the shards are shared out among {nodes}")


async def owned_by(fleet: Fleet, fair: dict[int, str]) -> bool:
    return await fleet.owners() == fair
