"""The exporter of metrics: a thread that sends the latest reading to an OTLP collector.

A slow or dead collector holds nothing up: a reading that could not be sent is replaced by the next one, which
has all that it had. Only this file and `data_points` know the OpenTelemetry SDK.
"""

import logging
import time
from collections.abc import Sequence
from threading import Condition, Thread

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.resources import Resource
from prometheus_client.core import Metric

from angarium.telemetry.collector_session import CollectorSession
from angarium.telemetry.metrics.data_points import PointTimes, data_points
from angarium.telemetry.otel_variables import STOP_MAX_S, Collector

log = logging.getLogger(__name__)


class ReadingsExporter:
    """Sends readings; it has at most one that waits, the latest."""

    def __init__(self, exporter: MetricExporter, resource: Resource) -> None:
        self._exporter = exporter
        self._resource = resource
        self._began_at = time.time()
        self._latest: tuple[Sequence[Metric], float] | None = None
        self._changed = Condition()
        self._stopping = False
        self._refused = False
        self._thread = Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def take(self, metrics: Sequence[Metric]) -> None:
        """Send these metrics, as of now, in place of those that still wait."""
        with self._changed:
            self._latest = metrics, time.time()
            self._changed.notify()

    def stop(self) -> None:
        """Send the latest reading, and end. A collector that is slow does not get it."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(STOP_MAX_S)

    def _run(self) -> None:
        while (latest := self._next()) is not None:
            self._send(*latest)
        self._exporter.shutdown()

    def _next(self) -> tuple[Sequence[Metric], float] | None:
        """The reading that waits, or the next one; None if there is none any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._latest is not None or self._stopping)
            latest, self._latest = self._latest, None
            return latest

    def _send(self, metrics: Sequence[Metric], read_at: float) -> None:
        try:
            data = data_points(metrics, self._resource, PointTimes(self._began_at, read_at))
            result = self._exporter.export(data)
        except Exception as error:  # An exporter's defect must not end the thread.
            log.error("metrics.broken", exc_info=error)
            result = MetricExportResult.FAILURE
        refused = result is not MetricExportResult.SUCCESS
        if refused and not self._refused:
            log.warning("metrics.dropped")
        self._refused = refused


def otlp_exporter(collector: Collector) -> ReadingsExporter:
    """An exporter that the standard variables configure: endpoint, headers, certificates, timeout."""
    resource = Resource.create(dict(collector.attributes))
    if not collector.grpc:
        return ReadingsExporter(HttpExporter(session=CollectorSession()), resource)
    from grpc import Compression
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

    compression = Compression[collector.grpc_compression]
    return ReadingsExporter(GrpcExporter(compression=compression), resource)
