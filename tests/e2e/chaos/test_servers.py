"""Servers of a cluster of three die, hang, lose their store, fill it, or stop together.

The leader of each stream is killed in `tests/e2e/crashes/test_cluster.py`.
"""

import asyncio
import time

import pytest

from streams.nats.answers import Stored
from tests.support.fleet.fleet import names
from tests.support.fleet.trial import (
    Trial,
    caught_up,
    empty,
    hang,
    is_full,
    meta_leader,
    resume,
    server_of,
    store_bytes,
)
from tests.support.processes.nodes import needs_proc

pytestmark = [pytest.mark.soak, pytest.mark.alone, needs_proc]
AWAY_S = 15.0
LONG_AWAY_S = 60.0
LEASE_S = 10.0
IDLE_CPU = 0.2
BIG, BIG_BODY, BIG_COUNT = "t.big", b"x" * 100_000, 200


@pytest.mark.parametrize("which", ["meta", "node"])
async def test_the_meta_leader_or_the_server_of_a_node_is_killed(trial: Trial, which: str) -> None:
    node = await trial.fleet.start_ready()
    async with trial.flowing():
        server = await (meta_leader(trial.fleet) if which == "meta" else server_of(trial.fleet, node))
        await server.kill()
        trial.failed()
        await trial.goes_on("the kill")
        await server.start()
        await trial.goes_on("the start")
    await trial.check()


@pytest.mark.parametrize(
    ("which", "hangs_s"),
    [
        ("journal", 8.0),
        pytest.param("journal", 30.0, marks=pytest.mark.chaos),
        pytest.param("node", 30.0, marks=pytest.mark.chaos),
    ],
)
async def test_a_server_stands_still_and_wakes(trial: Trial, which: str, hangs_s: float) -> None:
    """The server's first answers after it wakes may be old, and are not believed."""
    node = await trial.fleet.start_ready()
    async with trial.flowing():
        led = trial.fleet.leader(names.journal) if which == "journal" else server_of(trial.fleet, node)
        server = await led
        hang(server)
        trial.failed()
        try:
            wakes_at = time.monotonic() + hangs_s
            await trial.goes_on("the stop")
            await asyncio.sleep(max(0.0, wakes_at - time.monotonic()))
        finally:
            resume(server)
        await trial.goes_on("the waking")
    await trial.check()


async def test_a_server_is_started_with_an_empty_store(trial: Trial) -> None:
    """Another server is killed only after this one has caught up.

    Before, a stream of which this server has nothing could have no leader: nats-server counts the vote of a
    replica without messages only if all replicas vote.
    """
    await trial.fleet.start_ready()
    async with trial.flowing():
        server = await trial.fleet.leader(names.journal)
        await server.kill()
        trial.failed()
        empty(server)
        await server.start()
        await trial.goes_on("the start on an empty store")
        await trial.fleet.until_true(lambda: caught_up(trial.fleet), "the server has caught up")
        other = next(each for each in trial.fleet.servers if each is not server)
        await other.kill()
        trial.failed()
        await trial.goes_on("the kill of another one")
        await other.start()
    await trial.check()


@pytest.mark.parametrize("apart_s", [1.0, pytest.param(12.0, marks=pytest.mark.chaos)])
async def test_all_servers_are_killed_and_start_in_any_order(trial: Trial, apart_s: float) -> None:
    for name in ("one", "two"):
        await trial.fleet.start_ready(name)
    async with trial.flowing():
        await asyncio.gather(*(each.kill() for each in trial.fleet.servers))
        trial.failed()
        for server in trial.rng.sample(trial.fleet.servers, len(trial.fleet.servers)):
            await asyncio.sleep(apart_s)
            await server.start()
        await trial.goes_on("the last start")
    await trial.check()


async def test_two_of_three_servers_are_away(trial: Trial) -> None:
    await two_servers_are_away(trial, AWAY_S)


@pytest.mark.chaos
async def test_two_of_three_servers_are_away_for_long(wide_trial: Trial) -> None:
    await two_servers_are_away(wide_trial, LONG_AWAY_S)


async def two_servers_are_away(trial: Trial, away_s: float) -> None:
    """No attempt starts once the lease is over, producers are refused, and nodes wait idly."""
    fleet = trial.fleet
    nodes = [await fleet.start_ready(name) for name in ("one", "two")]
    async with trial.flowing():
        away = trial.rng.sample(fleet.servers, 2)
        await asyncio.gather(*(each.kill() for each in away))
        trial.failed()
        await asyncio.sleep(LEASE_S)
        attempts, since, used_s = fleet.sink.total, time.monotonic(), [node.cpu_s for node in nodes]
        assert not isinstance(await fleet.js.publish(f"angarium.deliver.{BIG}", b"{}"), Stored)
        await asyncio.sleep(away_s - LEASE_S)
        waited_s = time.monotonic() - since
        assert fleet.sink.total == attempts
        busiest = max(node.cpu_s - before for node, before in zip(nodes, used_s, strict=True)) / waited_s
        trial.saw(f"no attempt after the lease; a node used {busiest:.1%} of a core (bound {IDLE_CPU:.0%})")
        assert busiest < IDLE_CPU
        await asyncio.gather(*(each.start() for each in away))
        await trial.goes_on("the start of both")
    await trial.check()


async def test_the_store_of_a_server_is_full(trial: Trial) -> None:
    """Every acknowledged event is delivered, at the latest once the server has room again."""
    fleet, stored = trial.fleet, 0
    await fleet.configure([BIG])
    await fleet.start_ready()
    async with trial.flowing():
        server = trial.rng.choice(fleet.servers)
        await server.stop()
        trial.failed()
        server.max_file_store = store_bytes(server) + BIG_COUNT * len(BIG_BODY) // 10
        await server.start()
        for number in range(BIG_COUNT):
            put = await fleet.js.publish(
                f"angarium.deliver.{BIG}", BIG_BODY, {"Nats-Msg-Id": f"big:{number}"}
            )
            stored += isinstance(put, Stored)
        await fleet.until_true(lambda: is_full(server), "the store is full")
        await server.stop()
        server.max_file_store = None
        await server.start()
        await trial.goes_on("it had room")
        seen = fleet.sink.arrivals[BIG]
        await fleet.until(
            lambda: len({each.event_id for each in seen if each.accepted}) >= stored,
            "all that was stored came",
        )
    await trial.check()
