"""A node exports its metrics by OTLP: the same names and values as on its page, and no secret."""

from collections.abc import Iterator

import httpx
import pytest

from angarium.telemetry.metrics.table import BY_NAME
from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.sink import Reply
from tests.support.fleet.watcher import Watcher
from tests.support.otlp_collector import Collector
from tests.support.secrecy import secrets_in

MOVING = (
    "process_",
    "angarium_loop_lag_seconds",
    "angarium_journal_",
    "angarium_snapshot_age",
    "angarium_backlog_oldest",
)
"""Beginnings of names whose values differ from one reading to the next."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    yield collector
    collector.stop()


async def test_the_collector_gets_what_the_page_shows(
    fleet: Fleet, http: httpx.AsyncClient, collector: Collector
) -> None:
    node = await fleet.start_ready("one")
    watcher = Watcher(http, node)
    fleet.sink.manners["t.busy"] = lambda _: Reply(429, (("retry-after", "3600"),))
    await fleet.configure(["t.good", "t.busy"])
    for receiver in ("t.good", "t.good", "t.busy"):
        await fleet.js.publish(names.publish_to(receiver), b"{}")
    await fleet.js.publish(f"{names.prefix}.events.t.order.created", b"{}")

    def still(found: dict[str, float]) -> dict[str, float]:
        return {name: value for name, value in found.items() if not name.startswith(MOVING)}

    async def same() -> bool:
        shown, told = await watcher.metrics(), collector.told("one")
        return told.get("angarium_deliveries_total delivered") == 3 and still(told) == still(shown)

    await fleet.until_true(same, "the collector got what the page shows")
    assert collector.told("one").keys() == (await watcher.metrics()).keys()
    described = collector.described("one")
    ours = {name: each for name, each in described.items() if name in BY_NAME}
    assert {each.unit for each in ours.values()} >= {"s", "By", "{event}"}
    assert {name: each.unit for name, each in ours.items()} == {name: BY_NAME[name].unit for name in ours}
    assert described["process_resident_memory_bytes"].unit == "By"
    assert ours["angarium_deliveries_total"].sum.is_monotonic
    assert not secrets_in(str(described))
    assert not [name for name in collector.told("one") if "t.good" in name]
