"""Opens the tracing that the `OTEL_*` variables ask for. Without an endpoint, nothing is imported."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from msgspec import Struct

from angarium.settings import SettingsError
from angarium.telemetry.otel_log import limit_otel_log
from angarium.telemetry.otel_variables import collector_of, whole
from angarium.telemetry.spans import Span
from angarium.telemetry.trace_ids import Sampler, always, never, ratio
from angarium.telemetry.tracer import Tracer

QUEUE_SIZE = 2048
QUEUE_SIZE_MAX = 65_536
"""Spans of some 5 kB each: with all of them waiting, a node holds 326 MB more."""
EXPORT_DELAY_MS = 5000
EXPORT_DELAY_MAX_MS = 60_000


class Exporter(Protocol):
    """Takes spans and never waits; counts those that the collector took, and those that were dropped."""

    exported: int
    dropped: int

    def take(self, span: Callable[[], Span]) -> bool:
        """Queue a span; False if it is dropped."""

    def finish(self) -> None:
        """Begin to send the queued spans and to end."""

    def stop(self) -> None:
        """Return when it has ended, or the time for that is over."""


class Tracing(Struct, frozen=True):
    """Tracing that is switched on."""

    tracer: Tracer
    exporter: Exporter


def open_tracing(environ: Mapping[str, str], node: str, *, failures: bool = False) -> Tracing | None:
    """The tracing that these variables ask for; None if they give no endpoint. Raises SettingsError.

    `failures`: failed deliveries are exported even if their traces are not sampled.
    """
    collector = collector_of("traces", environ, node)
    if collector is None:
        return None
    sampler = sampler_of(environ)
    queue_max = whole(environ, "OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SIZE, QUEUE_SIZE_MAX)
    delay_ms = whole(environ, "OTEL_BSP_SCHEDULE_DELAY", EXPORT_DELAY_MS, EXPORT_DELAY_MAX_MS)
    limit_otel_log(environ)
    from angarium.telemetry.span_exporter import otlp_exporter  # Only this needs the extra.

    exporter = otlp_exporter(collector, queue_max=queue_max, delay_s=delay_ms / 1000)
    return Tracing(Tracer(sampler, exporter.take, failures=failures), exporter)


@asynccontextmanager
async def exporting_spans(tracing: Tracing | None) -> AsyncIterator[None]:
    """Export spans while the block runs, and return when the last ones are sent."""
    try:
        yield
    finally:
        if tracing is not None:
            tracing.exporter.finish()
            await asyncio.to_thread(tracing.exporter.stop)


def sampler_of(environ: Mapping[str, str]) -> Sampler:
    """The sampler of events without a producer's decision, which always counts. Raises SettingsError."""
    name = environ.get("OTEL_TRACES_SAMPLER") or "parentbased_always_on"
    match name.removeprefix("parentbased_"):
        case "always_on":
            return always
        case "always_off":
            return never
        case "traceidratio":
            given = environ.get("OTEL_TRACES_SAMPLER_ARG") or "1"
            try:
                fraction = float(given)
            except ValueError:
                fraction = -1.0
            if 0 <= fraction <= 1:
                return ratio(fraction)
            raise SettingsError(f"OTEL_TRACES_SAMPLER_ARG: must be a number from 0 to 1, not {given!r}")
        case _:
            raise SettingsError(
                f"OTEL_TRACES_SAMPLER: must be always_on, always_off or traceidratio, "
                f"with or without parentbased_, not {name!r}"
            )
