"""The monitor of all workers: sums that are true, and what one that ends or hangs does to them."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from angarium.http_server import Received, Reply
from angarium.node.metrics.largest import LargestCounters
from angarium.workers import workers_monitor
from angarium.workers.worker import Worker
from angarium.workers.workers_monitor import WorkersMonitor


@pytest.fixture(autouse=True)
def without_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_monitor, "REUSE_FACTOR", 0)


READY = Reply(200, body=b"ready\n")


class FakeWorker(SimpleNamespace):
    """A worker with the answers of `pages`; None: it does not answer."""

    def __init__(self, name: str, pages: Mapping[str, Reply | None], **members: Any) -> None:
        usual = {"starts": 1, "has_answered": True, "is_running": True, "questions": 0, "on_ask": list}
        super().__init__(name=name, **usual | members)
        self.pages = pages

    async def ask(self, path: str) -> Reply | None:
        self.questions += 1
        self.on_ask()
        await asyncio.sleep(0)
        return self.pages[path]


def page(
    delivered: float, waiting: float = 0, *, connected: int = 1, took_s: float = 0.1, reason: str = "expired"
) -> Reply:
    """A page of a worker that has such metrics, a few of each kind."""
    registry = CollectorRegistry()
    Counter("angarium_deliveries", "", ["outcome"], registry=registry).labels("delivered").inc(delivered)
    Counter("angarium_dead_letters", "", ["reason"], registry=registry).labels(reason).inc()
    Gauge("angarium_events_waiting", "", registry=registry).set(waiting)
    Gauge("angarium_nats_connected", "", registry=registry).set(connected)
    Gauge("process_open_fds", "", registry=registry).set(delivered)
    Gauge("process_max_fds", "", registry=registry).set(1000 + delivered)
    Histogram("angarium_attempt_seconds", "", buckets=(0.5, 1), registry=registry).observe(took_s)
    return Reply(200, body=generate_latest(registry))


def routed(by_tenant: Mapping[str, int]) -> Reply:
    """A page of a worker that has routed these events."""
    registry = CollectorRegistry()
    counter = Counter("angarium_tenant_routed_events", "", ["tenant"], registry=registry)
    for tenant, count in by_tenant.items():
        counter.labels(tenant).inc(count)
    return Reply(200, body=generate_latest(registry))


async def get(monitor: WorkersMonitor, path: str) -> Reply:
    reply = monitor.answer(Received("GET", path, {}, b""))
    return reply if isinstance(reply, Reply) else await reply


async def scrape(monitor: WorkersMonitor) -> dict[str, float]:
    """Each sample by its name and labels."""
    reply = await get(monitor, "/metrics")
    assert reply.status == 200
    return {
        " ".join([sample.name, *sorted(sample.labels.values())]): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }


def monitor_of(*workers: FakeWorker) -> WorkersMonitor:
    return WorkersMonitor([cast(Worker, each) for each in workers])


async def test_counters_histograms_and_gauges_are_added() -> None:
    one = FakeWorker("n-1", {"/metrics": page(3, 10, took_s=0.1, reason="expired")})
    two = FakeWorker("n-2", {"/metrics": page(4, 20, took_s=0.7, reason="rejected")}, starts=3)
    found = await scrape(monitor_of(one, two))
    expected = {
        "angarium_deliveries_total delivered": 7, "angarium_events_waiting": 30,
        "angarium_dead_letters_total expired": 1, "angarium_dead_letters_total rejected": 1,
        "angarium_attempt_seconds_bucket 0.5": 1, "angarium_attempt_seconds_bucket 1.0": 2,
        "angarium_attempt_seconds_bucket +Inf": 2, "angarium_attempt_seconds_count": 2,
        "angarium_attempt_seconds_sum": pytest.approx(0.8),
        "angarium_workers configured": 2, "angarium_workers up": 2, "angarium_worker_restarts_total": 2,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


async def test_gauges_whose_sum_would_mean_something_else_are_not_added() -> None:
    one, two = (FakeWorker(f"n-{each}", {"/metrics": page(each)}) for each in (1, 2))
    monitor = monitor_of(one, two)
    found = await scrape(monitor)
    assert (found["angarium_nats_connected"], found["process_open_fds"]) == (1, 2)
    assert found["process_max_fds"] == 1001, "the supervisor's own limit and files do not count"
    two.pages = {"/metrics": page(2, connected=0)}
    assert (await scrape(monitor))["angarium_nats_connected"] == 0


async def test_no_counter_falls_when_a_worker_does_not_answer_or_starts_again() -> None:
    one, two = (FakeWorker(f"n-{each}", {"/metrics": page(100, 5)}) for each in (1, 2))
    monitor = monitor_of(one, two)
    await scrape(monitor)
    two.pages = {"/metrics": None}
    found = await scrape(monitor)
    assert (found["angarium_deliveries_total delivered"], found["angarium_attempt_seconds_count"]) == (200, 2)
    assert (found["angarium_events_waiting"], found["angarium_workers up"]) == (5, 1)
    two.pages, two.starts = {"/metrics": page(7, 1, reason="rejected")}, 2
    for _ in range(2):
        found = await scrape(monitor)
        assert found["angarium_deliveries_total delivered"] == 207
        assert found["angarium_dead_letters_total expired"] == 2
        assert (found["angarium_attempt_seconds_count"], found["angarium_events_waiting"]) == (3, 6)
    two.pages, two.starts = {"/metrics": page(1)}, 5
    assert (await scrape(monitor))["angarium_deliveries_total delivered"] == 208


async def test_a_page_counts_for_the_process_that_was_asked() -> None:
    """A worker starts again while the monitor waits for another one."""
    one, two = (FakeWorker(f"n-{each}", {"/metrics": page(100)}) for each in (1, 2))
    monitor = monitor_of(one, two)
    await scrape(monitor)
    one.pages = {"/metrics": page(110)}
    two.on_ask = lambda: setattr(one, "starts", 2)
    assert (await scrape(monitor))["angarium_deliveries_total delivered"] == 210
    one.pages = {"/metrics": page(3)}
    assert (await scrape(monitor))["angarium_deliveries_total delivered"] == 213


async def test_a_tenant_that_leaves_the_largest_of_one_worker_keeps_its_count() -> None:
    one, two = LargestCounters(1), LargestCounters(1)
    workers = [FakeWorker("n-1", {}), FakeWorker("n-2", {})]
    monitor = monitor_of(*workers)
    sums = []
    for counts in ({"acme": 200, "bolt": 0}, {"acme": 210, "bolt": 300}, {"acme": 400, "bolt": 301}):
        workers[0].pages = {"/metrics": routed(one.values(counts))}
        workers[1].pages = {"/metrics": routed(two.values({"acme": 90}))}
        sums.append((await scrape(monitor))["angarium_tenant_routed_events_total acme"])
    assert sums == [290, 290, 480]


async def test_the_supervisor_adds_its_own_cpu_and_memory() -> None:
    found = await scrape(monitor_of(FakeWorker("n-1", {"/metrics": page(1)})))
    assert found["process_cpu_seconds_total"] > 0
    assert found["process_resident_memory_bytes"] > 1 << 20


async def test_a_page_of_metrics_that_says_an_error_counts_as_none() -> None:
    broken = FakeWorker("n-1", {"/metrics": Reply(500, body=b"internal error; see the log\n")})
    assert (await scrape(monitor_of(broken)))["angarium_workers up"] == 0


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({}, "ready"),
        ({"pages": {"/readyz": Reply(503, body=b"not ready: 2 of 8 shards are not claimed yet\n")}},
         "not ready: n-2: 2 of 8 shards are not claimed yet"),
        ({"pages": {"/readyz": None}}, "not ready: n-2: it does not answer"),
        ({"pages": {"/readyz": None}, "has_answered": False}, "not ready: n-2: starting"),
        ({"pages": {"/readyz": None}, "has_answered": False, "is_running": False},
         "not ready: n-2: its process has ended"),
    ],
)  # fmt: skip
async def test_all_are_ready_when_each_is(second: dict[str, Any], says: str) -> None:
    given = {"pages": {"/readyz": READY}} | second
    reply = await get(
        monitor_of(FakeWorker("n-1", {"/readyz": READY}), FakeWorker("n-2", **given)), "/readyz"
    )
    assert (reply.status, reply.body.decode()) == (200 if says == "ready" else 503, f"{says}\n")


@pytest.mark.parametrize(
    ("has_answered", "answer", "status", "says"),
    [
        (True, Reply(200, body=b"ok\n"), 200, "ok\n"),
        (True, None, 503, "no answer from n-2\n"),
        (False, None, 200, "ok\n"),
    ],
)
async def test_a_worker_that_hangs_is_unhealthy_and_one_that_starts_is_not(
    has_answered: bool, answer: Reply | None, status: int, says: str
) -> None:
    one = FakeWorker("n-1", {"/healthz": Reply(200, body=b"ok\n")})
    reply = await get(
        monitor_of(one, FakeWorker("n-2", {"/healthz": answer}, has_answered=has_answered)), "/healthz"
    )
    assert (reply.status, reply.body.decode()) == (status, says)


async def test_clients_that_ask_at_the_same_time_share_the_answer() -> None:
    one = FakeWorker("n-1", {"/metrics": page(1), "/readyz": READY})
    monitor = monitor_of(one)
    replies = await asyncio.gather(*(get(monitor, "/metrics") for _ in range(20)), get(monitor, "/readyz"))
    assert one.questions == 2
    assert len({reply.body for reply in replies}) == 2
    assert (await get(monitor, "/readyz")).status == 200
    assert one.questions == 3


async def test_sums_are_reused_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_monitor, "REUSE_FACTOR", 1e9)
    one = FakeWorker("n-1", {"/metrics": page(1), "/readyz": READY})
    monitor = monitor_of(one)
    bodies = {(await get(monitor, "/metrics")).body for _ in range(3)}
    assert (len(bodies), one.questions) == (1, 1)
    await get(monitor, "/readyz")
    await get(monitor, "/readyz")
    assert one.questions == 3


async def test_a_defect_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    reply = await get(monitor_of(FakeWorker("n-1", {"/metrics": Reply(200, body=b"{")})), "/metrics")
    assert (reply.status, caplog.messages) == (500, ["monitor.broken"])


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/healthz", 405), ("GET", "/", 404)])
def test_other_requests_are_answered_at_once(method: str, path: str, status: int) -> None:
    reply = monitor_of().answer(Received(method, path, {}, b""))
    assert isinstance(reply, Reply)
    assert reply.status == status
