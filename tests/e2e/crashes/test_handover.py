"""Nodes that start and stop in order, under load: nothing is repeated or lost, and each gets its share."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streams.fleet.placement import even_owners
from tests.support.fleet.fleet import SHARDS, Fleet, open_fleet, shard
from tests.support.fleet.load import RECEIVERS, Load, mixed_load, publish
from tests.support.fleet.ownership import zombies_posted, zombies_wrote
from tests.support.fleet.sink import Hang, Reply
from tests.support.processes.commands import Terminal
from tests.support.processes.nodes import LONG_TTL_S, Node, needs_proc

AWAY_TTL_S = 5
"""Long enough that a node on a busy machine is back before the others count it as dead."""


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
async def test_drained_nodes_pass_their_work_on(fleet: Fleet, terminal: Terminal, rng: random.Random) -> None:
    """Each of three nodes is drained and resumed in turn, with answers that take up to 200 ms.

    Nothing comes twice, nothing is lost, and all is in order.
    """
    await fleet.configure(RECEIVERS)
    fleet.sink.manners |= dict.fromkeys(RECEIVERS, lambda _: Reply(delay_s=rng.uniform(0, 0.2)))
    load, nodes = Load(fleet, RECEIVERS, every_s=0.2), ("one", "two", "three")
    for node in nodes:
        await fleet.start_ready(node)
    await shared_out(fleet, *nodes)
    async with load.flowing():
        for node in nodes:
            await load.pass_some(rng)
            await asyncio.to_thread(terminal.done, "fleet", "drain", node)
            assert node not in (await fleet.owners()).values()
            await shared_out(fleet, *(each for each in nodes if each != node))
            await load.pass_some(rng)
            await asyncio.to_thread(terminal.done, "fleet", "resume", node)
            await shared_out(fleet, *nodes)
    load.check()
    flushes = await fleet.flushes()
    assert not list(zombies_wrote(flushes))
    assert not list(zombies_posted(fleet.arrivals(), flushes, fleet.sink.late_s))
    print(f"longest pause of a receiver, s: {longest_pause_s(load):.2f}")


def longest_pause_s(load: Load) -> float:
    """The longest time between two events that a receiver got, while it was sent one every 0.2 s."""
    return max(
        later.at - earlier.at
        for record in load.records
        for earlier, later in zip(record.arrivals, record.arrivals[1:], strict=False)
    )


async def test_a_restart_of_nats_moves_no_shard(tmp_path: Path) -> None:
    """The leases of both nodes expire while it is away, and each keeps what it owns."""
    async with open_fleet(tmp_path, ttl_s=AWAY_TTL_S) as fleet:
        nodes = [await fleet.start_ready(name) for name in ("one", "two")]
        await shared_out(fleet, "one", "two")
        before = [moves(node) for node in nodes]
        await fleet.server.kill()
        for node in nodes:
            await fleet.hears(node, "lease.lapsed")
        await fleet.server.start()
        shares = Counter(even_owners(SHARDS, ["one", "two"]))
        for node in nodes:
            await fleet.hears(node, "shard.resumed", shares[node.name])
        assert [moves(node) for node in nodes] == before


def moves(node: Node) -> list[int]:
    """Counts the shards that the process has claimed, without resuming them, handed over, or lost."""
    return [node.times(event) for event in ("shard.claimed", "shard.handed_over", "shard.ended")]


@needs_proc
async def test_an_attempt_that_takes_too_long_holds_no_shard_back(fleet: Fleet) -> None:
    """The attempt is given up when the shard's new owner joins, which repeats it under the same number."""
    owners = even_owners(SHARDS, ["one", "two"])
    receiver = next(each for each in RECEIVERS if owners[shard(each)] == "two")
    fleet.sink.manners[receiver] = lambda number: Hang() if number == 1 else Reply()
    await fleet.configure([receiver], timeout_s=60)
    await fleet.start_ready("one")
    await publish(fleet.js, receiver, "taking-long")
    seen = fleet.sink.arrivals[receiver]
    await fleet.until(lambda: len(seen) == 1, "the attempt has begun")
    await fleet.start_ready("two")
    await fleet.until(lambda: len(seen) == 2, "it was made again")
    assert [(each.sequence, each.attempt, each.by) for each in seen] == [(1, 1, "one"), (1, 1, "two")]


@needs_proc
async def test_other_shards_of_a_node_that_stops_do_not_wait_for_its_slowest_attempt(fleet: Fleet) -> None:
    owners = even_owners(SHARDS, ["one", "two"])
    slow = next(each for each in RECEIVERS if owners[shard(each)] == "two")
    quick = next(each for each in RECEIVERS if owners[shard(each)] == "two" and shard(each) != shard(slow))
    fleet.sink.manners[slow] = lambda number: Hang() if number == 1 else Reply()
    await fleet.configure([slow, quick], timeout_s=60)
    _, stopping = [await fleet.start_ready(name) for name in ("one", "two")]
    await shared_out(fleet, "one", "two")
    await publish(fleet.js, slow, "taking-long")
    await fleet.until(lambda: len(fleet.sink.arrivals[slow]) == 1, "the attempt has begun")
    stop = asyncio.create_task(stopping.stop())
    await fleet.until_true(lambda: taken(fleet, quick, "one"), "the other shard has its next owner")
    await publish(fleet.js, quick, "meanwhile")
    seen = fleet.sink.arrivals[quick]
    await fleet.until(lambda: len(seen) == 1, "an event of the other shard came")
    assert (seen[0].by, stop.done()) == ("one", False)
    await stop


async def taken(fleet: Fleet, receiver: str, node: str) -> bool:
    return (await fleet.owners()).get(shard(receiver)) == node


async def shared_out(fleet: Fleet, *nodes: str) -> None:
    """Return when each node owns what the placement gives it."""
    fair = dict(enumerate(even_owners(SHARDS, nodes)))
    await fleet.until_true(lambda: owned_by(fleet, fair), f"the shards are shared out among {nodes}")


async def owned_by(fleet: Fleet, fair: dict[int, str]) -> bool:
    return await fleet.owners() == fair
