"""Exports the metrics of a process by OTLP, if `OTEL_*` variables ask for it; if not, imports nothing."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from msgspec import Struct
from prometheus_client.core import Metric

from angarium.settings import SettingsError
from angarium.telemetry.otel_log import limit_otel_log
from angarium.telemetry.otel_variables import collector_of, whole

EXPORT_EVERY_MS = 60_000
EXPORT_EVERY_MAX_MS = 3_600_000
READING_REST_FACTOR = 10
"""The next reading waits for this many times as long as the last one took: it holds up the event loop."""
log = logging.getLogger(__name__)
_TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"


class MetricsCollector(Protocol):
    """Reads metrics, such as a registry of `prometheus_client`."""

    def collect(self) -> Iterable[Metric]:
        """All metrics, as of now."""
        ...


class MetricsExporter(Protocol):
    """Takes readings and never waits."""

    def take(self, metrics: Sequence[Metric]) -> None:
        """Send these metrics, as of now."""

    def stop(self) -> None:
        """Send what was taken last, and end."""


class MetricsExport(Struct, frozen=True):
    """An export that is switched on."""

    exporter: MetricsExporter
    every_s: float


def open_metrics_export(environ: Mapping[str, str], instance: str) -> MetricsExport | None:
    """The export that these variables ask for; None if they give no endpoint. Raises SettingsError."""
    collector = collector_of("metrics", environ, instance)
    if collector is None:
        return None
    temporality = environ.get(_TEMPORALITY) or "cumulative"
    if temporality.lower() != "cumulative":
        raise SettingsError(f"{_TEMPORALITY}: must be cumulative, not {temporality!r}")
    every_ms = whole(environ, "OTEL_METRIC_EXPORT_INTERVAL", EXPORT_EVERY_MS, EXPORT_EVERY_MAX_MS)
    limit_otel_log(environ)
    from angarium.telemetry.metrics.metrics_exporter import otlp_exporter  # Only this needs the extra.

    return MetricsExport(otlp_exporter(collector), every_ms / 1000)


@asynccontextmanager
async def exporting(export: MetricsExport | None, metrics: MetricsCollector) -> AsyncIterator[None]:
    """Export the metrics regularly while the block runs, and once more at its end."""
    if export is None:
        yield
        return
    reading = asyncio.ensure_future(_read_regularly(export, metrics))
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.wait((reading,))
        _read(export, metrics)
        await asyncio.to_thread(export.exporter.stop)


async def _read_regularly(export: MetricsExport, metrics: MetricsCollector) -> None:
    while True:
        began_at = time.monotonic()
        _read(export, metrics)
        took_s = time.monotonic() - began_at
        await asyncio.sleep(max(export.every_s, READING_REST_FACTOR * took_s))


def _read(export: MetricsExport, metrics: MetricsCollector) -> None:
    try:
        export.exporter.take(list(metrics.collect()))
    except Exception:  # A defect in one metric must not end the process, nor all further readings.
        log.exception("metrics.broken")
