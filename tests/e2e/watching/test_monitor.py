"""Monitoring a node: its health, its readiness, and every documented metric."""

import asyncio
import socket
from pathlib import Path

import httpx
import pytest

from tests.support.fleet.fleet import SHARDS, Fleet, names
from tests.support.fleet.sink import Reply
from tests.support.fleet.watcher import Watcher, documented, ready
from tests.support.processes.commands import Terminal

HANGS_S = 0.5
ONLY_WITH_TRACES = {"angarium_spans_total"}
ONLY_WITH_WORKERS = {"angarium_workers", "angarium_worker_restarts_total"}


async def test_every_metric_of_the_documentation_is_there_and_moves(
    fleet: Fleet, http: httpx.AsyncClient
) -> None:
    node = await fleet.start_ready()
    watcher = Watcher(http, node)
    assert await watcher.names() == documented() - ONLY_WITH_TRACES - ONLY_WITH_WORKERS
    fleet.sink.manners["t.rejecting"] = lambda _: Reply(400)
    fleet.sink.manners["t.busy"] = lambda _: Reply(429, (("retry-after", "3600"),))
    await fleet.configure(["t.good", "t.rejecting"], retry={"rejected_attempts": 1})
    await fleet.configure(["t.busy"])
    for receiver in ("t.good", "t.good", "t.rejecting", "t.busy", "t.busy", "t.unknown"):
        await fleet.js.publish(names.publish_to(receiver), b"{}")
    await fleet.js.publish(f"{names.prefix}.events.t.order.created", b"{}")
    expected = {
        "angarium_deliveries_total delivered": 3, "angarium_deliveries_total rejected": 2,
        "angarium_deliveries_total throttled": 1, "angarium_attempts_total 2xx": 3,
        "angarium_attempts_total 4xx": 3, "angarium_attempt_seconds_count": 6,
        "angarium_arrival_seconds_count": 3, "angarium_dead_letters_total rejected": 2,
        "angarium_dead_letters_total unknown_receiver": 1, "angarium_receivers_held throttled": 1,
        "angarium_receivers_parked": 1, "angarium_events_waiting": 3, "angarium_attempts_in_flight": 0,
        "angarium_router_copies_total": 3,
        "angarium_shards running": SHARDS, "angarium_takeovers_total clean": SHARDS,
        "angarium_nats_connected": 1, "angarium_fences_total": 0,
    }  # fmt: skip
    # After some seconds there is an alert about dead letters, which is one more event.
    counted = (
        "angarium_journal_append_seconds_sum", "angarium_journal_facts_total", "angarium_journal_bytes_total",
        "angarium_loop_lag_seconds_count", "process_resident_memory_bytes", "angarium_router_events_total",
    )  # fmt: skip
    found: dict[str, float] = {}

    async def moved() -> bool:
        found.update(await watcher.metrics())
        exact = {name: found.get(name) for name in expected} == expected
        return exact and all(found[name] > 0 for name in counted)

    await fleet.until_true(moved, "the metrics tell what happened")
    assert not [name for name in found if "t.good" in name]


async def test_readiness_shows_an_outage_of_nats_and_health_a_loop_that_hangs(
    fleet: Fleet, http: httpx.AsyncClient
) -> None:
    node = await fleet.start("one")
    await fleet.until(lambda: bool(node.monitor), "the monitor listens")
    watcher = Watcher(http, node)
    status, said = await watcher.get("/readyz")
    assert (status, said[:9]) == (503, "not ready") or (status, said) == (200, "ready\n")
    await ready(fleet, watcher)
    await fleet.server.kill()

    async def unready() -> bool:
        return await watcher.get("/readyz") == (503, "not ready: NATS is not connected\n")

    await fleet.until_true(unready, "it says that NATS is away")
    assert await watcher.get("/healthz") == (200, "ok\n")
    await fleet.server.start()
    await ready(fleet, watcher)
    assert (await watcher.metrics())["angarium_nats_reconnects_total"] == 1
    node.sleep()
    with pytest.raises(httpx.TimeoutException):
        await watcher.get("/healthz", HANGS_S)
    node.wake()
    assert await watcher.get("/healthz") == (200, "ok\n")


async def test_a_port_in_use_is_one_line(fleet: Fleet, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, fleet.server.url)
    terminal.environment["ANGARIUM_SHARDS"] = str(SHARDS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = await asyncio.to_thread(terminal.failed, "node", "--monitor", address, "--log-level", "error")
    assert said.startswith(f"angarium: monitor: cannot listen on {address} (the address is in use); ")
