"""The monitor of a node: `/healthz`, `/readyz` and `/metrics`, on a port of its own, or for its supervisor.

It is deliberately served by the loop that does the work: a node whose loop hangs gives no answer, which every
probe treats as a failure. A loop that is merely late shows in `angarium_loop_lag_seconds`.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import assert_never

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from actors.delivery_totals import Histogram
from angarium.http_server import Received, Reply, serve_connected
from angarium.monitor_server import exposition, listening, page_of, text
from angarium.node.metrics.node_metrics import NodeMetrics
from angarium.node.node import Node
from angarium.telemetry.metrics.cached_pages import CachedPages
from angarium.telemetry.metrics.families import histogram
from angarium.telemetry.metrics.open_export import MetricsExport, exporting

LAG_SAMPLE_EVERY_S = 0.1
LAG_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Monitor(Collector):
    """Answers for the node that it watches; until there is one, it answers "alive" and "not ready"."""

    def __init__(self) -> None:
        self._node: Node | None = None
        self._lag = Histogram(LAG_BOUNDS_S)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        self.metrics = CachedPages(self._registry)

    def watch(self, node: Node) -> None:
        """Answer for this started node from now on."""
        self._node = node
        self._registry.register(NodeMetrics(node))
        self.metrics.renew()

    def answer(self, received: Received) -> Reply:
        """The answer to one request."""
        metrics = partial(self._metrics, "application/openmetrics-text" in received.headers.get("accept", ""))
        pages: dict[str, Callable[[], Reply]]
        pages = {"/healthz": self._health, "/readyz": self._readiness, "/metrics": metrics}
        return page_of(received, pages)

    def collect(self) -> Iterator[Metric]:
        """The metrics that exist without a node."""
        yield histogram("angarium_loop_lag_seconds", self._lag)

    async def sample_lag(self) -> None:
        """Note how late the loop is, by a clock that runs while the loop hangs, until cancelled."""
        while True:
            due = time.monotonic() + LAG_SAMPLE_EVERY_S
            await asyncio.sleep(LAG_SAMPLE_EVERY_S)
            self._lag.add(time.monotonic() - due)

    def _health(self) -> Reply:
        return text(200, "ok")

    def _readiness(self) -> Reply:
        why = "starting" if self._node is None else unready(self._node)
        return text(503, f"not ready: {why}") if why else text(200, "ready")

    def _metrics(self, with_exemplars: bool) -> Reply:
        """The metrics, in the text format that has exemplars if the client reads it, as Prometheus does."""
        if with_exemplars:
            return exposition(self.metrics.page(openmetrics.generate_latest), openmetrics.CONTENT_TYPE_LATEST)
        return exposition(self.metrics.page(generate_latest))


def unready(node: Node) -> str:
    """The reason why the node does not do everything that it should now; empty if it does."""
    members, owned = node.context.members, node.owned
    wanted = members.wanted_shards(node.shards)
    if node.is_stopping:
        return "stopping"
    if not node.context.js.wire.is_connected:
        return "NATS is not connected"
    if not members.lease.is_valid():
        return "the lease has expired: NATS has stored no heartbeat of this node for too long"
    if members.draining:
        return _draining(len(wanted), len(owned))
    if not node.context.configurations.is_complete:
        return (
            "configurations are being read; "
            "only direct sends to receivers that are known by now are delivered"
        )
    for number, why in node.refused.items():
        return f"shard {number} is refused: {why}"
    if missing := sum(number not in owned for number in wanted):
        return f"{missing} of {len(wanted)} shards are not claimed yet"
    if held_up := sum(shard.is_suspended or shard.ended.is_set() for shard in owned.values()):
        return f"{held_up} of {len(owned)} shards wait until they are claimed again"
    return ""


def _draining(wanted: int, owned: int) -> str:
    if wanted:
        return f"draining, but no other node can take its {wanted} shards"
    return f"draining, {owned} shards left" if owned else "drained: it owns no shard until it is resumed"


@asynccontextmanager
async def monitoring(
    place: str | socket.socket | None, export: MetricsExport | None = None
) -> AsyncIterator[Monitor]:
    """Serve a monitor at an address, to the other end of a socket, or nowhere, and export its metrics.

    Raises MonitorFailed.
    """
    monitor = Monitor()
    if place is None and export is None:
        yield monitor
        return
    async with AsyncExitStack() as stack:
        match place:
            case None:
                pass
            case str():
                await stack.enter_async_context(listening(place, monitor.answer))
            case socket.socket():
                stack.callback((await serve_connected(place, monitor.answer)).close)
            case _:
                assert_never(place)
        sampling = asyncio.ensure_future(monitor.sample_lag())
        stack.callback(sampling.cancel)
        await stack.enter_async_context(exporting(export, monitor.metrics))
        yield monitor
