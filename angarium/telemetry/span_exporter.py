"""The exporter: a thread that sends spans to an OTLP collector, from a queue of limited length.

Nothing here holds up a delivery. If the queue is full, or the collector does not take a batch, the spans are
dropped and counted. Of traces, only this file knows the OpenTelemetry SDK.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from threading import Event, Thread

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event as SdkMoment
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.trace import SpanKind as SdkKind

from angarium.telemetry.collector_session import CollectorSession
from angarium.telemetry.otel_variables import STOP_MAX_S, Collector
from angarium.telemetry.spans import Span, SpanKind

BATCH_MAX = 512
"""Spans in one request to the collector."""
LOG_FULL_EVERY_S = 60.0
log = logging.getLogger(__name__)

_KINDS = {SpanKind.CLIENT: SdkKind.CLIENT, SpanKind.CONSUMER: SdkKind.CONSUMER}


class _Producer(Resource):
    """The resource of all spans, with a quick hash.

    The SDK hashes it for each span. By its attributes, that took a third of the CPU that a span costs.
    """

    __hash__ = object.__hash__


class QueuedExporter:
    """Sends spans to the collector; `exported` and `dropped` count them."""

    def __init__(self, exporter: SpanExporter, resource: Resource, *, queue_max: int, delay_s: float) -> None:
        self.exported = 0
        self.dropped = 0
        self._exporter = exporter
        self._resource = _Producer(resource.attributes, resource.schema_url)
        self._queue_max = queue_max
        self._wake_at = min(BATCH_MAX, queue_max)
        self._logged_full_at = -math.inf
        self._delay_s = delay_s
        self._queue: deque[Callable[[], Span]] = deque()
        self._wake = Event()
        self._stopping = False
        self._stop_by = 0.0
        self._refused = False
        self._thread = Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def take(self, span: Callable[[], Span]) -> bool:
        """Queue a span, which is made in the thread; False if the queue is full, so that it is dropped."""
        if len(self._queue) >= self._queue_max:
            self.dropped += 1
            self._log_full()
            return False
        self._queue.append(span)
        if len(self._queue) == self._wake_at:
            self._wake.set()
        return True

    def _log_full(self) -> None:
        now = time.monotonic()
        if now - self._logged_full_at >= LOG_FULL_EVERY_S:
            self._logged_full_at = now
            log.warning("traces.queue_full", extra={"spans": self._queue_max})

    def finish(self) -> None:
        """Begin to send the queued spans and to end."""
        if not self._stopping:
            self._stop_by = time.monotonic() + STOP_MAX_S
            self._stopping = True
            self._wake.set()

    def stop(self) -> None:
        """Return when it has ended. Spans that a slow collector does not take in time are dropped."""
        self.finish()
        self._thread.join(max(0.0, self._stop_by - time.monotonic()))

    def _run(self) -> None:
        stopping = False
        while not stopping:
            self._wake.wait(self._delay_s)
            self._wake.clear()
            stopping = self._stopping  # Read before the queue: nothing is queued afterwards.
            while self._queue:
                self._send([self._queue.popleft() for _ in range(min(len(self._queue), BATCH_MAX))])
        self._exporter.shutdown()

    def _send(self, batch: list[Callable[[], Span]]) -> None:
        try:
            result = self._exporter.export([self._readable(make()) for make in batch])
        except Exception as error:  # An exporter's defect must not end the thread.
            log.error("traces.broken", exc_info=error)
            result = SpanExportResult.FAILURE
        refused = result is not SpanExportResult.SUCCESS
        if refused:
            self.dropped += len(batch)
        else:
            self.exported += len(batch)
        if refused and not self._refused:
            log.warning("traces.dropped")
        self._refused = refused

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace, span.span),
            parent=_context(span.trace, span.parent) if span.parent else None,
            resource=self._resource,
            attributes=span.attributes,
            events=[SdkMoment(each.name, timestamp=_nanoseconds(each.at)) for each in span.moments],
            links=[Link(_context(*each)) for each in span.links],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
        )


def otlp_exporter(collector: Collector, *, queue_max: int, delay_s: float) -> QueuedExporter:
    """An exporter that the standard variables configure: endpoint, headers, certificates, timeout."""
    resource = Resource.create(dict(collector.attributes))
    if not collector.grpc:
        return QueuedExporter(
            HttpExporter(session=CollectorSession()), resource, queue_max=queue_max, delay_s=delay_s
        )
    from grpc import Compression
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

    exporter = GrpcExporter(compression=Compression[collector.grpc_compression])
    return QueuedExporter(exporter, resource, queue_max=queue_max, delay_s=delay_s)


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
