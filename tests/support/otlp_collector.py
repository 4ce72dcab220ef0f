"""An OTLP collector for tests, over HTTP."""

import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from angarium.telemetry.spans import Moment, SpanKind, SpanName
from angarium.telemetry.spans import Span as ExportedSpan


class Collector:
    """An OTLP collector on loopback that keeps the spans that it got, and the metrics that came last.

    It answers each request with `status`.
    """

    def __init__(self, status: int = 200) -> None:
        self.spans: list[Span] = []
        self.metrics: dict[str, ResourceMetrics] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                match self.path:
                    case "/v1/traces":
                        collector.take_spans(ExportTraceServiceRequest.FromString(body))
                    case "/v1/metrics":
                        collector.take_metrics(ExportMetricsServiceRequest.FromString(body))
                self.send_response(status)
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

    def take_spans(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        for each in request.resource_metrics:
            attributes = {member.key: member.value.string_value for member in each.resource.attributes}
            self.metrics[attributes["service.instance.id"]] = each

    def told(self, instance: str) -> dict[str, float]:
        """The last values of an instance by name and labels, as `Watcher.metrics` returns those of a page."""
        found: dict[str, float] = {}
        for metric in self.described(instance).values():
            if metric.HasField("histogram"):
                for each in metric.histogram.data_points:
                    found[_key(f"{metric.name}_count", each.attributes)] = each.count
                    found[_key(f"{metric.name}_sum", each.attributes)] = each.sum
                continue
            numbers = metric.sum if metric.HasField("sum") else metric.gauge
            found |= {_key(metric.name, each.attributes): each.as_double for each in numbers.data_points}
        return found

    def described(self, instance: str) -> dict[str, Metric]:
        """The last metrics of an instance by name; none if it has sent none."""
        if instance not in self.metrics:
            return {}
        return {each.name: each for scope in self.metrics[instance].scope_metrics for each in scope.metrics}

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


def _key(name: str, attributes: Iterable[KeyValue]) -> str:
    return " ".join([name, *sorted(each.value.string_value for each in attributes)])


def span() -> ExportedSpan:
    """A finished span to export."""
    return ExportedSpan(
        name="POST", kind=SpanKind.CLIENT, trace=1, span=2, parent=3, start=1.5, end=2.0, failed=True,
        attributes={"http.request.method": "POST"}, moments=(Moment("throttled", 1.75),),
        links=(SpanName(4, 5),),
    )  # fmt: skip
