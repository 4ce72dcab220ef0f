"""A node exports traces to a collector, with the span ids that receivers got, after a kill -9, too."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract, inject
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind, Tracer

from angarium.telemetry.otel_variables import STOP_MAX_S
from streams.installation.topology import Names
from tests.support.fleet.fleet import Fleet
from tests.support.fleet.sink import Reply, Request
from tests.support.otlp_collector import Collector
from tests.support.processes.jaeger import Jaeger, JaegerSpan, jaeger_process, needs_jaeger, ready
from tests.support.secrecy import secrets_in
from tests.support.waiting import COMMAND_LOOK_S

names = Names()
RECEIVER = "t.traced"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    yield collector
    collector.stop()


@pytest.fixture
def jaeger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Jaeger]:
    """A Jaeger to which nodes export by gRPC."""
    with jaeger_process(tmp_path) as jaeger:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", jaeger.grpc)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield jaeger


def service(name: str, jaeger: Jaeger) -> Tracer:
    """The tracer of a service with an SDK of its own, which exports by HTTP."""
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{jaeger.http}/v1/traces")))
    return provider.get_tracer(name)


async def test_a_takeover_continues_the_trace_of_the_producer(fleet: Fleet, collector: Collector) -> None:
    fleet.sink.manners[RECEIVER] = lambda _: Reply(status=500)
    await fleet.configure([RECEIVER], retry={"base_s": 0.05, "cap_s": 0.5})
    node = await fleet.start_ready()
    await fleet.js.publish(names.publish_to(RECEIVER), b"{}", {"traceparent": PARENT})
    await fleet.until(lambda: bool(collector.headers("POST")), "a failed attempt was exported")
    await node.kill()
    fleet.sink.manners[RECEIVER] = lambda _: Reply(status=204)
    await fleet.start_ready()
    await fleet.until(lambda: bool(collector.headers(f"deliver {RECEIVER}")), "the delivery was exported")
    exported = collector.headers("POST")
    last = fleet.sink.latest[RECEIVER].headers["traceparent"]
    assert exported[-1] == last
    assert len(set(exported)) == len(exported)
    (deliver,) = [each for each in collector.spans if each.name != "POST"]
    assert deliver.parent_span_id.hex() == PARENT.split("-")[2]
    assert {each.trace_id.hex() for each in collector.spans} == {PARENT.split("-")[1]}
    assert {each.parent_span_id for each in collector.spans if each.name == "POST"} == {deliver.span_id}
    assert not secrets_in(str(collector.spans))


async def test_a_failed_delivery_is_exported_without_being_sampled(
    fleet: Fleet, collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "angarium.toml").write_text("trace_failures = true\n")
    fleet.sink.manners[RECEIVER] = lambda nth: Reply(500 if nth == 2 else 204)
    await fleet.configure([RECEIVER], retry={"base_s": 0.05})
    await fleet.start_ready()
    for _ in range(3):
        await fleet.js.publish(names.publish_to(RECEIVER), b"{}", {"traceparent": f"{PARENT[:-2]}00"})
    await fleet.until(lambda: len(fleet.sink.arrivals[RECEIVER]) == 4, "all are delivered")
    await fleet.until(lambda: bool(collector.headers(f"deliver {RECEIVER}")), "the failure was exported")
    assert sorted(each.name for each in collector.spans) == ["POST", "POST", f"deliver {RECEIVER}"]
    assert fleet.sink.latest[RECEIVER].headers["traceparent"].endswith("-00")


async def test_the_last_spans_are_exported_when_a_node_ends(
    fleet: Fleet, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    await fleet.configure([RECEIVER])
    node = await fleet.start_ready()
    await fleet.js.publish(names.publish_to(RECEIVER), b"{}")
    await fleet.until(lambda: len(fleet.sink.arrivals[RECEIVER]) == 1, "it is delivered")
    await node.stop()
    assert sorted(each.name for each in collector.spans) == ["POST", f"deliver {RECEIVER}"]


async def test_workers_end_as_they_should_while_a_collector_never_answers(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        await fleet.configure([RECEIVER])
        node = await fleet.start(workers=2)
        await fleet.hears(node, "node.ready", 2)
        await fleet.js.publish(names.publish_to(RECEIVER), b"{}")
        await fleet.until(lambda: len(fleet.sink.arrivals[RECEIVER]) == 1, "it is delivered")
        began_at = time.monotonic()
        await node.stop()
        assert STOP_MAX_S <= time.monotonic() - began_at < 2 * STOP_MAX_S, "spans and metrics together"


@needs_jaeger
async def test_jaeger_shows_one_tree_from_the_producer_to_the_receiver_across_a_kill(
    fleet: Fleet, jaeger: Jaeger
) -> None:
    await ready(jaeger)
    shop, billing = service("shop", jaeger), service("billing", jaeger)

    def handle(receiver: str, request: Request) -> None:
        billing.start_span("receive", extract(request.headers), SpanKind.SERVER).end()

    fleet.sink.onlooker = handle
    fleet.sink.manners[RECEIVER] = lambda nth: Reply(503, (("retry-after", "2"),)) if nth == 1 else Reply(204)
    await fleet.configure([RECEIVER])
    node = await fleet.start_ready()
    headers = dict[str, str]()
    with shop.start_as_current_span("publish", kind=SpanKind.PRODUCER) as publish:
        inject(headers)
        await fleet.js.publish(names.publish_event("t", "order.created"), b"{}", headers)
    trace = f"{publish.get_span_context().trace_id:032x}"
    seen: list[JaegerSpan] = []

    async def has(*names: str) -> bool:
        seen[:] = await jaeger.trace(trace)
        return {each.name for each in seen} >= {*names}

    await fleet.until_true(lambda: has("POST"), "Jaeger has the first attempt", COMMAND_LOOK_S)
    await node.kill()
    await fleet.start_ready()
    route, deliver = "route t", f"deliver {RECEIVER}"
    await fleet.until_true(lambda: has(route, deliver), "Jaeger has the delivery", COMMAND_LOOK_S)
    assert tree(seen) == [
        ("shop", "publish"),
        ("shop", "publish", route),
        ("shop", "publish", route, deliver),
        *[("shop", "publish", route, deliver, "POST")] * 2,
        *[("shop", "publish", route, deliver, "POST", "receive")] * 2,
    ]
    statuses = [each.tags["http.response.status_code"] for each in seen if each.name == "POST"]
    assert statuses == [503, 204]
    assert {each.service for each in seen if each.name == "receive"} == {"billing"}
    assert len({each.span for each in seen}) == len(seen)


def tree(spans: list[JaegerSpan]) -> list[tuple[str, ...]]:
    """The way to each span from the service of its root, sorted."""
    by_id = {each.span: each for each in spans}

    def way(span: JaegerSpan) -> tuple[str, ...]:
        above = way(by_id[span.parent]) if span.parent else (span.service,)
        return (*above, span.name)

    return sorted(map(way, spans))
