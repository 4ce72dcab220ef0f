"""A node exports traces to a collector, with the span ids that receivers got, over a kill -9, too."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from streams.installation.topology import Names
from tests.support.fleet.fleet import Fleet
from tests.support.fleet.sink import Reply
from tests.support.secrecy import secrets_in

names = Names()
RECEIVER = "t.traced"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector:
    """An OTLP collector on loopback that keeps the spans that it got."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def headers(self, name: str) -> list[str]:
        """The `traceparent` of each span of that name, in the order of their ends."""
        found = sorted(
            (each for each in self.spans if each.name == name), key=lambda each: each.end_time_unix_nano
        )
        return [f"00-{each.trace_id.hex()}-{each.span_id.hex()}-01" for each in found]

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    yield collector
    collector.stop()


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
