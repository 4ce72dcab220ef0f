"""Metrics of a process that is no node: served at an address, and exported by OTLP, if that is asked for."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from angarium.http_server import Received, Reply
from angarium.monitor_server import exposition, listening, page_of, text
from angarium.telemetry.metrics.open_export import exporting, open_metrics_export


@asynccontextmanager
async def serving_metrics(
    address: str | None, instance: str, metrics: Collector, unready: Callable[[], str]
) -> AsyncIterator[None]:
    """Show these metrics, and those of the process, while the block runs.

    `unready` returns why the process is not ready; empty if it is. Raises MonitorFailed and SettingsError.
    """
    export = open_metrics_export(os.environ, instance)
    registry = CollectorRegistry()
    registry.register(metrics)
    ProcessCollector(registry=registry)

    def ready() -> Reply:
        why = unready()
        return text(503, f"not ready: {why}") if why else text(200, "ready")

    pages: dict[str, Callable[[], Reply]] = {
        "/healthz": lambda: text(200, "ok"),
        "/readyz": ready,
        "/metrics": lambda: exposition(generate_latest(registry)),
    }

    def answer(received: Received) -> Reply:
        return page_of(received, pages)

    async with AsyncExitStack() as stack:
        if address is not None:
            await stack.enter_async_context(listening(address, answer))
        await stack.enter_async_context(exporting(export, registry))
        yield
