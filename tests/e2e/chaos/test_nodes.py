"""Nodes that die, sleep, lose their connection, or stop in order, on three servers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from angarium.settings import REPLICATED_TTL_S
from tests.support.fleet.load import QUICK, slow_at_times
from tests.support.fleet.trial import TAKEN_S, Trial
from tests.support.processes.nodes import Node, needs_proc
from tests.support.proxy import Proxy

pytestmark = [pytest.mark.soak, pytest.mark.alone, needs_proc]
AWAY_S = 3 * REPLICATED_TTL_S
PAUSE_MAX_S = 1.0
"""Longest pause of a shard on a machine of its own, while nodes start and stop in order."""


async def test_a_node_is_killed(trial: Trial) -> None:
    victim, *_ = [await trial.fleet.start_ready(name) for name in ("one", "two", "three")]
    async with trial.flowing():
        await victim.kill()
        trial.failed()
        await trial.goes_on("the kill", TAKEN_S)
        await trial.fleet.start_ready(victim.name)
        await trial.goes_on("the start")
    await trial.check()


async def test_a_node_sleeps_for_three_leases_and_wakes(trial: Trial) -> None:
    sleeper, *_ = [await trial.fleet.start_ready(name) for name in ("one", "two", "three")]
    async with trial.flowing(), away(trial, sleeper, sleeper.sleep, sleeper.wake):
        pass
    await trial.check()


@pytest.mark.chaos
async def test_a_node_is_cut_off_for_three_leases(trial: Trial) -> None:
    """The node's connections stay open, so it notices only by its pings, and says so once."""
    fleet = trial.fleet
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy(server.port)) for server in fleet.servers]

        def cut() -> None:
            for proxy in proxies:
                proxy.cut()

        def mend() -> None:
            for proxy in proxies:
                proxy.mend()

        lonely = await fleet.start_ready("lonely", nats=[proxy.url for proxy in proxies])
        for name in ("two", "three"):
            await fleet.start_ready(name)
        async with trial.flowing(), away(trial, lonely, cut, mend, "nats.lost"):
            pass
        await trial.check()
        await lonely.stop()


@asynccontextmanager
async def away(
    trial: Trial,
    node: Node,
    leave: Callable[[], None],
    back: Callable[[], None],
    says: str = "lease.lapsed",
) -> AsyncIterator[None]:
    """Let a node be away for three leases, and wait until it said so and owns shards again."""
    await trial.fleet.until_true(lambda: trial.fleet.owns(node.name), f"{node.name} owns shards")
    leave()
    trial.failed()
    try:
        until = time.monotonic() + AWAY_S
        await trial.goes_on("it went away", TAKEN_S)
        await asyncio.sleep(max(0.0, until - time.monotonic()))
    finally:
        back()
    await trial.fleet.hears(node, says)
    await trial.fleet.until_true(lambda: trial.fleet.owns(node.name), f"{node.name} owns shards again")
    await trial.goes_on("it was back")
    yield


async def test_nodes_join_and_are_stopped_and_started_in_turn_and_one_leaves(trial: Trial) -> None:
    """Receivers that answer within 200 ms get nothing twice, and no shard pauses for long."""
    trial.fleet.sink.manners |= dict.fromkeys(QUICK, slow_at_times)
    first = await trial.fleet.start_ready("one")
    async with trial.flowing():
        since = time.monotonic()
        nodes = [first]
        for name in ("two", "three"):
            nodes.append(await trial.fleet.start_ready(name))
            await trial.some()
        for node in nodes:
            await node.stop()
            await trial.some()
            await trial.fleet.start_ready(node.name)
        await trial.fleet.nodes["one"].stop()
        await trial.goes_on("one left for good")
        trial.no_shard_paused(since, PAUSE_MAX_S)
    await trial.check()
