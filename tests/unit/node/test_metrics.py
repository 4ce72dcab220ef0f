"""The text for Prometheus, and why a node is not ready."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from actors.configuration.policy import Rate
from actors.delivery_totals import Histogram
from angarium.http_server import Received
from angarium.node import monitor as monitoring
from angarium.node.metrics.node_metrics import NodeMetrics
from angarium.node.monitor import Monitor, unready
from angarium.node.node import Node
from angarium.node.shard import Shard
from angarium.node.totals import NodeTotals
from angarium.telemetry.metrics import cached_pages
from angarium.telemetry.metrics.cached_pages import CachedPages
from angarium.telemetry.metrics.families import histogram, single
from streams.dead_letters.letters import REASONS
from streams.journal.routing_progress import RoutingProgress
from streams.routing.node_routing import EventsByTenant, RoutingTotals
from streams.routing.selection.selection_totals import SelectionTotals
from tests.unit.worlds.shard import ShardWorld, relaxed, strict
from tests.unit.worlds.values import NOW, answer, policy
from tests.unit.worlds.virtual_time import in_virtual_time

Listeners = list[Any]


def node(owned: dict[int, Any] | None = None, **members: Any) -> Node:
    """A node as far as metrics look at it, with three shards wanted; `members` override."""
    listeners: Listeners = []
    lease = SimpleNamespace(is_valid=lambda: members.get("lease", True))
    context = SimpleNamespace(
        node="one",
        js=SimpleNamespace(
            wire=SimpleNamespace(is_connected=members.get("connected", True)),
            add_listener=listeners.append, listeners=listeners,
        ),
        members=SimpleNamespace(
            lease=lease, draining=members.get("draining", False),
            wanted_shards=lambda shards: list(range(shards)),
        ),
        configurations=SimpleNamespace(is_complete=members.get("complete", True), is_known=lambda _: True),
        routing=SimpleNamespace(
            totals=RoutingTotals(
                events=7, copies=9, selections=SelectionTotals(filtered=5, outside_region=3)
            ),
            routed_by_tenant=members.get("routed_by_tenant", EventsByTenant()),
        ),
        totals=members.get("totals", NodeTotals()), tracing=members.get("tracing"),
        metrics_names=members.get("metrics_names", 0),
        proxy_connections=lambda: members.get("proxies", {}),
        outage=members.get("outage"), has_outage="outage" in members,
    )  # fmt: skip
    return cast(Node, SimpleNamespace(
        context=context, shards=3,
        is_stopping=members.get("stopping", False), refused=members.get("refused", {}),
        owned={number: shard() for number in range(3)} if owned is None else owned,
    ))  # fmt: skip


def shard(
    world: ShardWorld | None = None,
    *,
    suspended: bool = False,
    ended: bool = False,
    parked: Mapping[str, int] = MappingProxyType({"acme": 3}),
    current_at: float = NOW,
) -> Shard:
    return cast(Shard, SimpleNamespace(
        routing=lambda: RoutingProgress(routed=9, parked_tenants=parked),
        snapshots=SimpleNamespace(current_at=current_at),
        unread=lambda: {"deliveries": 40, "events": 2},
        host=world and world.host, is_suspended=suspended, ended=SimpleNamespace(is_set=lambda: ended)
    ))  # fmt: skip


def scraped(watched: Node) -> dict[str, float]:
    """Each sample by its name and labels, as Prometheus reads them."""
    registry = CollectorRegistry()
    metrics = NodeMetrics(watched)
    registry.register(metrics)
    cast(Any, watched.context.js).listeners[0](False)
    cast(Any, watched.context.js).listeners[0](True)
    text = generate_latest(registry).decode()
    return {
        " ".join([sample.name, *sorted(sample.labels.values())]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_spans_are_counted_while_traces_are_exported() -> None:
    tracer = SimpleNamespace(dropped=4, exemplars=(None, None))
    tracing = SimpleNamespace(exporter=SimpleNamespace(exported=5, dropped=3), tracer=tracer)
    found = scraped(node({}, tracing=tracing))
    assert (found["angarium_spans_total exported"], found["angarium_spans_total dropped"]) == (5, 7)
    assert "angarium_spans_total dropped" not in scraped(node({}))


def test_an_outage_of_the_node_itself_is_shown() -> None:
    names = ("angarium_own_outage", "angarium_own_outages_total", "angarium_outage_probes_total")
    assert [scraped(node({}))[name] for name in names] == [0, 0, 0]
    found = scraped(node({}, outage=SimpleNamespace(outage_count=2, probed=31)))
    assert [found[name] for name in names] == [1, 2, 31]


def test_each_reason_of_a_dead_letter_is_there_before_the_first_one() -> None:
    """Prometheus sees no increase in a series that begins with its first event."""
    found = labels_of(scraped(node({})), "angarium_dead_letters_total")
    assert found == dict.fromkeys((*REASONS, "discarded", "region"), 0)


def test_events_that_are_withheld_and_filters_that_fail_are_counted() -> None:
    watched = node({})
    watched.context.routing.totals.selections.failures["failed"] = 2
    found = scraped(watched)
    assert labels_of(found, "angarium_router_withheld_total") == {"filter": 5, "region": 3}
    failures = labels_of(found, "angarium_filter_failures_total")
    assert failures == {"not_json": 0, "failed": 2, "too_costly": 0}


def test_buckets_add_up() -> None:
    counted = Histogram((0.1, 1.0))
    for value in (0.05, 0.5, 0.6, 7.0):
        counted.add(value)
    name = "angarium_loop_lag_seconds"
    samples = {(each.name, each.labels.get("le")): each.value for each in histogram(name, counted).samples}
    assert samples == {
        (f"{name}_bucket", "0.1"): 1, (f"{name}_bucket", "1.0"): 3, (f"{name}_bucket", "+Inf"): 4,
        (f"{name}_count", None): 4, (f"{name}_sum", None): pytest.approx(8.15),
    }  # fmt: skip


@in_virtual_time
async def test_the_actors_in_memory_are_counted_over_all_shards() -> None:
    paused = strict(paused=True)
    paused.publish(3)
    hanging = strict()
    hanging.sender.latency_s = 1000.0
    hanging.publish(2)
    await paused.pass_time(5)
    totals = NodeTotals()
    totals.actors.dead_letters["expired"] = 2
    totals.actors.answered_429 = 3
    totals.ownership.unclean = 1
    watched = node(
        {0: shard(paused), 1: shard(hanging, suspended=True)}, totals=totals, refused={2: "why"},
        proxies={"eu": 5},
    )  # fmt: skip
    found = scraped(watched)
    hanging.host.stop()
    assert found["angarium_actors"] == 2
    assert found["angarium_events_waiting"] == 4
    assert found["angarium_attempts_in_flight"] == 1
    assert found["angarium_proxy_connections eu"] == 5
    assert (found["angarium_receivers_held paused"], found["angarium_receivers_held throttled"]) == (1, 0)
    assert found["angarium_receivers_parked"] == len(paused.host.parked) + len(hanging.host.parked) > 0
    assert found["angarium_tenants_parked"] == 1
    assert found["angarium_backlog_oldest_seconds _other"] == pytest.approx(5.0, abs=0.1)
    assert found["angarium_snapshot_age_seconds"] == pytest.approx(5.0, abs=0.1)
    assert found["angarium_too_many_requests_total"] == 3
    assert [found[f"angarium_messages_unread {each}"] for each in ("deliveries", "events")] == [80, 4]
    assert [found[f"angarium_shards {each}"] for each in ("running", "suspended", "refused")] == [1, 1, 1]
    assert found["angarium_installation_shards"] == 3
    assert found["angarium_dead_letters_total expired"] == 2
    assert found["angarium_takeovers_total unclean"] == 1
    assert (found["angarium_router_events_total"], found["angarium_router_copies_total"]) == (7, 9)
    assert (found["angarium_nats_connected"], found["angarium_nats_reconnects_total"]) == (1, 1)


@in_virtual_time
async def test_receivers_with_a_learnt_limit_are_counted_by_the_rule_that_set_it() -> None:
    totals, worlds = NodeTotals(), list[ShardWorld]()
    for told in (answer(429, retry_after="1"), answer(200, ratelimit='"a";r=6;t=30'), answer(200)):
        world = relaxed(rate=Rate(limit=10, burst=1), concurrency=4)
        world.sender.answers(told)
        world.publish(40)
        worlds.append(world)
    await worlds[0].pass_time(3)
    totals.actors.paces["smart"] = 7
    found = scraped(node(dict(enumerate(map(shard, worlds))), totals=totals))
    counted = [world.host.totals.paces for world in worlds]
    for world in worlds:
        world.host.stop()
    held = {"headers": 1, "after_429": 1, "concurrency": 0, "smart": 0}
    assert labels_of(found, "angarium_receivers_paced") == held
    assert labels_of(found, "angarium_paces_learnt_total") == dict.fromkeys(held, 0) | {"smart": 7, "none": 0}
    assert [[name for name, count in each.items() if count] for each in counted] == [
        ["after_429"], ["headers"], []
    ]  # fmt: skip


@in_virtual_time
async def test_metrics_name_the_largest_and_sum_up_the_others() -> None:
    """This holds for backlogs, ages, phases by tenant, parked tenants, and events by tenant."""
    world = strict(paused=True)
    for receiver, count in (("acme.a", 5), ("acme.b", 2), ("other.c", 3)):
        world.put(policy(paused=True), receiver)
        world.publish(count, receiver=receiver)
        await world.pass_time(5)
    world.put(policy(rate=Rate(limit=1, per="hour", burst=4)), "calm.limited")
    world.publish(2, receiver="calm.limited")
    await world.pass_time(1)
    counted = EventsByTenant()
    counted.counts = {"acme": 7, "other": 2, "calm": 1}
    counted.others = 3
    parked = {"acme": 8, "other": 2, "calm": 7, "_other": 1}
    watched = node({0: shard(world, parked=parked)}, metrics_names=1, routed_by_tenant=counted)
    found = scraped(watched)
    none = scraped(node({0: shard(world, parked=parked)}, routed_by_tenant=counted))
    world.host.stop()

    def told(name: str, labels: str = "") -> dict[str, float]:
        return {each: value for each, value in labels_of(found, name).items() if labels in each}

    assert told("angarium_backlog_events") == {"acme.a": 5, "_other": 5}
    assert told("angarium_backlog_oldest_seconds") == {
        "acme.a": pytest.approx(16, abs=0.1), "_other": pytest.approx(11, abs=0.1)
    }  # fmt: skip
    assert told("angarium_tenant_receivers_held", "paused") == {"acme paused": 2, "_other paused": 1}
    assert told("angarium_tenant_parked") == {"other": 1, "_other": 3}
    assert told("angarium_tenant_routed_events_total") == {"acme": 7, "_other": 6}
    assert told("angarium_rate_buckets") == {"empty": 0, "low": 0, "high": 1, "full": 0}
    assert labels_of(none, "angarium_backlog_events") == {"_other": 10}
    assert not [name for name in none if "acme" in name or "calm" in name]


def labels_of(found: dict[str, float], name: str) -> dict[str, float]:
    """The values of one metric by their labels."""
    named = ((each.partition(" "), value) for each, value in found.items())
    return {labels: value for (each, _, labels), value in named if each == name}


@pytest.mark.parametrize(
    ("watched", "why"),
    [
        (node(), ""),
        (node(stopping=True), "stopping"),
        (node(connected=False), "NATS is not connected"),
        (node(lease=False), "the lease has expired"),
        (node({}, draining=True), "draining, but no other node can take its 3 shards"),
        (node({0: shard()}, refused={2: "upgrade this node"}), "shard 2 is refused: upgrade this node"),
        (node(complete=False), "configurations are being read"),
        (node({0: shard()}), "2 of 3 shards are not claimed yet"),
        (
            node({0: shard(), 1: shard(suspended=True), 2: shard(ended=True)}),
            "2 of 3 shards wait until they are claimed again",
        ),
    ],
)
def test_why_a_node_is_not_ready(watched: Node, why: str) -> None:
    assert unready(watched).startswith(why)
    assert bool(unready(watched)) == bool(why)


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/healthz", 200, b"ok\n"),
        ("GET", "/readyz?verbose", 503, b"not ready: starting\n"),
        ("POST", "/healthz", 405, b""),
        ("GET", "/", 404, b"not found; try /healthz, /readyz or /metrics\n"),
    ],
)
def test_the_answers_before_there_is_a_node(method: str, path: str, status: int, text: bytes) -> None:
    reply = Monitor().answer(Received(method, path, {}, b""))
    assert (reply.status, reply.body) == (status, text)


def test_a_node_that_works_is_ready_and_has_its_metrics_and_those_of_the_process() -> None:
    monitor = Monitor()
    monitor.watch(node({}))
    reply = monitor.answer(Received("GET", "/metrics", {}, b""))
    assert reply.status == 200
    assert b'angarium_node_info{node="one",version=' in reply.body
    assert b"angarium_loop_lag_seconds_count 0.0" in reply.body


def test_a_client_that_reads_exemplars_gets_the_format_that_has_them() -> None:
    monitor = Monitor()
    monitor.watch(node({}))
    plain = monitor.answer(Received("GET", "/metrics", {"accept": "text/plain"}, b""))
    asked = {"accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4"}
    reply = monitor.answer(Received("GET", "/metrics", asked, b""))
    assert dict(plain.headers)["content-type"].startswith("text/plain;")
    assert dict(reply.headers)["content-type"].startswith("application/openmetrics-text;")
    series = {line.partition(" ")[0] for line in plain.body.decode().splitlines() if line[0] != "#"}
    families = openmetrics_families(reply.body.decode())  # type: ignore[no-untyped-call]
    assert {sample.name for family in families for sample in family.samples} == {
        each.partition("{")[0] for each in series
    }


def test_constant_scrapes_take_at_most_a_tenth_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape looks at each actor in memory: 100,000 of them take 60 ms."""
    now, scrapes = 0.0, 0

    def scrape(_: Collector) -> bytes:
        nonlocal now, scrapes
        now += 0.06
        scrapes += 1
        return b"%d" % scrapes

    monkeypatch.setattr(monitoring, "generate_latest", scrape)
    monkeypatch.setattr(cached_pages, "time", SimpleNamespace(monotonic=lambda: now))
    monitor = Monitor()
    told = []
    for _ in range(100):
        told.append(monitor.answer(Received("GET", "/metrics", {}, b"")).body)
        now += 0.01
    assert told == [b"1"] * 60 + [b"2"] * 40
    monitor.watch(node({}))
    assert monitor.answer(Received("GET", "/metrics", {}, b"")).body == b"3"


def test_both_formats_and_the_export_share_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_pages, "REUSE_FACTOR", 1e9)
    counting = CountedReadings()
    pages = CachedPages(counting)
    shown = [pages.page(each) for each in (generate_latest, openmetrics_latest, generate_latest)]
    assert counting.readings == 1
    assert shown[0] == shown[2] != shown[1]
    exported = pages.collect()
    assert counting.readings == 2, "an export reads anew"
    assert f"angarium_actors {exported[0].samples[0].value}" in pages.page(generate_latest).decode()
    assert counting.readings == 2


class CountedReadings(Collector):
    """Metrics that show how often they were read."""

    def __init__(self) -> None:
        self.readings = 0

    def collect(self) -> Iterator[Metric]:
        self.readings += 1
        yield single("angarium_actors", self.readings)


def test_a_failure_during_a_scrape_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    monitor = Monitor()
    monitor.watch(node({0: None}))
    assert monitor.answer(Received("GET", "/metrics", {}, b"")).status == 500
    assert caplog.messages == ["monitor.broken"]
