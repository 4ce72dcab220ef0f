"""Alerts under the permissions of `deploy/nats/permissions.conf`: a node may publish events about them."""

import asyncio
from pathlib import Path

from tests.support.fleet.sink import Reply, Sink
from tests.support.processes.commands import PATIENCE_S, Terminal, line_with
from tests.support.processes.nodes import shortened
from tests.support.processes.roles import serving
from tests.support.waiting import until

GONE, ALERTED = "acme.gone", "acme.alerted"


async def test_a_node_may_publish_events_about_alerts(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        operator = Terminal(tmp_path, server.url("operator"))
        await asyncio.to_thread(operator.done, "setup")
        with shortened({"JUDGE_EVERY_S": 0.2}):
            terminal = Terminal(tmp_path, server.url("node"))
        arguments = ("node", "--allow-http", "--allow-network", "127.0.0.0/8", "--log-level", "info")
        async with Sink() as sink:
            with terminal.start(*arguments) as node:
                await asyncio.to_thread(line_with, node.stderr, "node.ready")
                sink.manners[GONE] = lambda _: Reply(status=410)
                subscribes = ("--event", "angarium.alert.>")
                put = ("receiver", "put")
                await asyncio.to_thread(operator.done, *put, ALERTED, "--url", sink.url(ALERTED), *subscribes)
                await asyncio.to_thread(operator.done, *put, GONE, "--url", sink.url(GONE))
                await asyncio.to_thread(operator.done, "publish", GONE, "{}")
                await until(lambda: bool(sink.arrivals[ALERTED]))
                node.terminate()
                _, log = await asyncio.to_thread(node.communicate, timeout=PATIENCE_S)
    assert "permissions violation" not in log
