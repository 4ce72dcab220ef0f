"""Several workers that are watched: one page for all, whatever becomes of any of them."""

import os
import signal
import time

import httpx

from angarium.workers.worker import ANSWER_TIMEOUT_S
from tests.support.fleet.fleet import SHARDS, Fleet, names
from tests.support.fleet.watcher import Watcher, documented, ready
from tests.support.processes.nodes import Node, needs_proc

ONLY_WITH_TRACES = {"angarium_spans_total"}
RECEIVERS = [f"t.r{number}" for number in range(SHARDS)]
ROUNDS = 5
DELIVERED = "angarium_deliveries_total delivered"


async def test_the_metrics_are_the_sums_of_all_workers(fleet: Fleet, http: httpx.AsyncClient) -> None:
    _, watcher = await started(fleet, http)
    assert await watcher.names() == documented() - ONLY_WITH_TRACES
    count = len(RECEIVERS) * ROUNDS
    expected = {
        DELIVERED: count, "angarium_attempts_total 2xx": count, "angarium_attempt_seconds_count": count,
        "angarium_arrival_seconds_count": count, "angarium_actors": len(RECEIVERS),
        "angarium_shards running": SHARDS, "angarium_installation_shards": SHARDS,
        "angarium_nats_connected": 1,
        "angarium_workers configured": 2, "angarium_workers up": 2, "angarium_worker_restarts_total": 0,
    }  # fmt: skip

    async def told() -> bool:
        found = await watcher.metrics()
        named = [name.split()[-1] for name in found if name.startswith("angarium_node_info")]
        exact = {name: found.get(name) for name in expected} == expected
        return exact and sorted(named) == ["one-1", "one-2"]

    await fleet.until_true(told, "the metrics tell of the work of both")


@needs_proc
async def test_a_worker_that_hangs_blocks_no_page_and_lowers_no_counter(
    fleet: Fleet, http: httpx.AsyncClient
) -> None:
    node, watcher = await started(fleet, http)
    before = await watcher.metrics()
    hanging = node.worker_pids()["one-2"]
    os.kill(hanging, signal.SIGSTOP)
    took_s, found = 0.0, before

    async def asked_again() -> bool:
        """The page before may be reused for a moment."""
        nonlocal took_s, found
        asked_at = time.monotonic()
        found = await watcher.metrics()
        took_s = time.monotonic() - asked_at
        return found["angarium_workers up"] == 1

    try:
        await fleet.until_true(asked_again, "the page leaves out the worker that hangs")
        assert found["angarium_workers configured"] == 2
        assert found[DELIVERED] >= before[DELIVERED] > 0
        assert ANSWER_TIMEOUT_S <= took_s < ANSWER_TIMEOUT_S + 5
        status, said = await watcher.get("/readyz")
        assert (status, "one-2: it does not answer" in said) == (503, True)
        assert await watcher.get("/healthz") == (503, "no answer from one-2\n")
    finally:
        os.kill(hanging, signal.SIGCONT)
    await ready(fleet, watcher)
    assert await watcher.get("/healthz") == (200, "ok\n")
    assert (await watcher.metrics())["angarium_workers up"] == 2


@needs_proc
async def test_a_worker_that_was_killed_makes_all_unready_and_lowers_no_counter(
    fleet: Fleet, http: httpx.AsyncClient
) -> None:
    node, watcher = await started(fleet, http)
    before = await watcher.metrics()
    first = node.worker_pids()["one-1"]
    os.kill(first, signal.SIGKILL)
    await fleet.hears(node, "worker.ended")
    status, said = await watcher.get("/readyz")
    assert (status, said.startswith("not ready: ")) == (503, True)
    assert "one-1: " in said
    assert await watcher.get("/healthz") == (200, "ok\n")
    found = await watcher.metrics()
    assert found[DELIVERED] >= before[DELIVERED] > 0
    await ready(fleet, watcher)
    found = await watcher.metrics()
    assert (found["angarium_worker_restarts_total"], found["angarium_shards running"]) == (1, SHARDS)
    assert found[DELIVERED] >= before[DELIVERED]


async def started(fleet: Fleet, http: httpx.AsyncClient) -> tuple[Node, Watcher]:
    """Two workers that are ready, and to which events come."""
    node = await fleet.start(workers=2)
    await fleet.until(lambda: bool(node.monitor), "the monitor listens")
    watcher = Watcher(http, node)
    await ready(fleet, watcher)
    await fleet.configure(RECEIVERS)
    for receiver in RECEIVERS * ROUNDS:
        await fleet.js.publish(names.publish_to(receiver), b"{}")
    count = len(RECEIVERS) * ROUNDS
    await fleet.until(lambda: fleet.sink.total == count, "all events came")
    return node, watcher
