"""The queries by which KEDA scales the nodes, asked of a real Prometheus that watches a real node."""

import asyncio
import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from streams.server.free_ports import free_ports
from tests.support.free_ports import free_port
from tests.support.processes.commands import Terminal, line_with
from tests.support.processes.roles import DEPLOY, serving
from tests.support.waiting import COMMAND_LOOK_S, until_true

PROMETHEUS = shutil.which("prometheus")
SCALED = yaml.safe_load((DEPLOY / "kubernetes" / "keda" / "scaled-object.yaml").read_text())
BACKLOG = 500
QUERIES = {each["name"]: each["metadata"]["query"] for each in SCALED["spec"]["triggers"]}


class Prometheus:
    """A server on a port of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(self, query: str) -> list[float] | None:
        """The values of an instant query; None while the server does not answer."""
        return await asyncio.to_thread(self._ask, query)

    def _ask(self, query: str) -> list[float] | None:
        asked = urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/query?{asked}") as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except OSError:
            return None
        return [float(each["value"][1]) for each in found]


@pytest.fixture
def ports() -> list[int]:
    """The ports of Prometheus and of two nodes."""
    return free_ports(3)


@pytest.fixture
def prometheus(tmp_path: Path, ports: list[int]) -> Iterator[Prometheus]:
    """A Prometheus that scrapes both nodes five times a second, and itself, which is no node."""
    assert PROMETHEUS is not None
    own, *nodes = ports
    targets = [f"127.0.0.1:{port}" for port in nodes]
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
        "scrape_configs": [
            {"job_name": "pods", "static_configs": [{"targets": targets}]},
            {"job_name": "others", "static_configs": [{"targets": [f"127.0.0.1:{own}"]}]},
        ],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    command = (
        PROMETHEUS, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb",
        f"--web.listen-address=127.0.0.1:{own}", "--log.level=error",
    )  # fmt: skip
    process = subprocess.Popen(command)
    try:
        yield Prometheus(own)
    finally:
        process.terminate()
        process.wait()


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed: see .ci/run")
async def test_each_query_is_one_number_over_all_nodes_and_none_while_there_is_no_node(
    prometheus: Prometheus, ports: list[int], tmp_path: Path
) -> None:
    async def watches_itself() -> bool:
        return bool(await prometheus.ask("rate(process_cpu_seconds_total[2m])"))

    await until_true(watches_itself, COMMAND_LOOK_S)
    assert [await prometheus.ask(query) for query in QUERIES.values()] == [[], []]

    async def both_have_worked() -> bool:
        """True when two scrapes of each node differ: `cores` is 0 until then."""
        working = QUERIES["cores"].replace("sum(", "count(").replace("[2m])", "[2m]) > 0")
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
            unread, cores = [await prometheus.ask(QUERIES[name]) for name in ("unread", "cores")]
            for node in (one, other):
                node.terminate()
                await asyncio.to_thread(node.communicate)
    assert unread == [0.0]
    assert cores is not None
    [used] = cores
    assert 0 < used < 3


async def test_the_backlog_of_a_slow_receiver_asks_for_no_more_nodes(tmp_path: Path) -> None:
    assert QUERIES["unread"] == "sum(angarium_messages_unread)"
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
