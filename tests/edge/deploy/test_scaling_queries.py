"""The queries by which KEDA scales the nodes, asked of a real Prometheus that watches a real node."""

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.server.free_ports import free_ports
from tests.support.free_ports import free_port
from tests.support.processes.commands import Terminal, line_with
from tests.support.processes.roles import serving
from tests.support.waiting import COMMAND_LOOK_S, until_true
from tests.support.watching.prometheus import Prometheus, needs_prometheus, watching
from tests.support.watching.queries import KEDA_QUERIES

BACKLOG = 500


@pytest.fixture
def ports() -> list[int]:
    """The ports of Prometheus and of two nodes."""
    return free_ports(3)


@pytest.fixture
def prometheus(tmp_path: Path, ports: list[int]) -> Iterator[Prometheus]:
    """A Prometheus that scrapes both nodes, and itself, which is no node."""
    own, *nodes = ports
    with watching(tmp_path, own, {"pods": nodes}) as started:
        yield started


@needs_prometheus
async def test_each_query_is_one_number_over_all_nodes_and_none_while_there_is_no_node(
    prometheus: Prometheus, ports: list[int], tmp_path: Path
) -> None:
    async def watches_itself() -> bool:
        return bool(await prometheus.ask("rate(process_cpu_seconds_total[2m])"))

    await until_true(watches_itself, COMMAND_LOOK_S)
    assert [await prometheus.ask(query) for query in KEDA_QUERIES.values()] == [[], []]

    async def both_have_worked() -> bool:
        """True when two scrapes of each node differ: `cores` is 0 until then."""
        working = KEDA_QUERIES["cores"].replace("sum(", "count(").replace("[2m])", "[2m]) > 0")
        return await prometheus.ask(working) == [2.0]

    (tmp_path / "nats").mkdir()
    with serving(tmp_path / "nats") as server:
        await asyncio.to_thread(Terminal(tmp_path, server.url("operator")).done, "setup")
        terminal = Terminal(tmp_path, server.url("node"))
        with (
            terminal.start("node", "--monitor", f"127.0.0.1:{ports[1]}") as one,
            terminal.start("node", "--monitor", f"127.0.0.1:{ports[2]}") as other,
        ):
            await until_true(both_have_worked, COMMAND_LOOK_S)
            unread, cores = [await prometheus.ask(KEDA_QUERIES[name]) for name in ("unread", "cores")]
            for node in (one, other):
                node.terminate()
                await asyncio.to_thread(node.communicate)
    assert unread == [0.0]
    assert cores is not None
    [used] = cores
    assert 0 < used < 3


async def test_the_backlog_of_a_slow_receiver_asks_for_no_more_nodes(tmp_path: Path) -> None:
    assert KEDA_QUERIES["unread"] == "sum(angarium_messages_unread)"
    (tmp_path / "nats").mkdir()
    port = free_port()

    def scraped() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return {
            name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")
        }

    async def is_read() -> bool:
        found = await asyncio.to_thread(scraped)
        unread = found['angarium_messages_unread{stream="deliveries"}']
        return (found["angarium_events_waiting"], unread) == (BACKLOG, 0)

    with serving(tmp_path / "nats") as server:
        operator = Terminal(tmp_path, server.url("operator"))
        await asyncio.to_thread(operator.done, "setup")
        put = ("receiver", "put", "acme.slow", "--url", "https://192.0.2.1/", "--paused")
        await asyncio.to_thread(operator.done, *put)
        async with server.user("acme") as acme:
            await asyncio.gather(*(acme.ask("angarium.deliver.acme.slow", b"{}") for _ in range(BACKLOG)))
        terminal = Terminal(tmp_path, server.url("node"))
        with terminal.start("node", "--monitor", f"127.0.0.1:{port}", "--log-level", "info") as node:
            await asyncio.to_thread(line_with, node.stderr, "node.ready")
            await until_true(is_read, COMMAND_LOOK_S)
            node.terminate()
            await asyncio.to_thread(node.communicate)
