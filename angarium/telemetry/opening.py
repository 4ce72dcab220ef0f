"""Opens the tracing that the `OTEL_*` variables ask for. Without an endpoint, nothing is imported."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Protocol

from msgspec import Struct

from angarium import __version__
from angarium.settings import SettingsError
from angarium.telemetry.spans import Span
from angarium.telemetry.trace_ids import Sampler, always, never, ratio
from angarium.telemetry.tracer import Tracer

QUEUE_SIZE = 2048
QUEUE_SIZE_MAX = 65_536
"""Spans of some 2 kB each: with all of them waiting, a node holds 130 MB more."""
EXPORT_DELAY_MS = 5000
EXPORT_DELAY_MAX_MS = 60_000
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXPORTERS = ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.exporter.otlp.proto.grpc")


class Exporter(Protocol):
    """Takes spans and never waits; counts those that the collector took, and those that were dropped."""

    exported: int
    dropped: int

    def take(self, span: Callable[[], Span]) -> None:
        """Queue a span."""

    def stop(self) -> None:
        """Send the queued spans, and end."""


class Tracing(Struct, frozen=True):
    """Tracing that is switched on."""

    tracer: Tracer
    exporter: Exporter


def open_tracing(environ: Mapping[str, str], node: str) -> Tracing | None:
    """The tracing that these variables ask for; None if they give no endpoint. Raises SettingsError."""
    disabled = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if disabled or environ.get("OTEL_TRACES_EXPORTER") == "none" or not _first(environ, _ENDPOINTS):
        return None
    sampler = sampler_of(environ)
    protocol = _first(environ, _PROTOCOLS) or "http/protobuf"
    if protocol not in ("grpc", "http/protobuf"):
        raise SettingsError(f"OTEL_EXPORTER_OTLP_PROTOCOL: must be grpc or http/protobuf, not {protocol!r}")
    if find_spec("opentelemetry") is None or not all(map(find_spec, _EXPORTERS)):
        raise SettingsError("OTEL_EXPORTER_OTLP_ENDPOINT: install angarium[otel], or unset this variable")
    from angarium.telemetry.export import otlp_exporter  # Only this needs the extra.

    exporter = otlp_exporter(
        {"service.version": __version__, "service.instance.id": node} | _service(environ),
        grpc=protocol == "grpc",
        queue_max=_whole(environ, "OTEL_BSP_MAX_QUEUE_SIZE", QUEUE_SIZE, QUEUE_SIZE_MAX),
        delay_s=_whole(environ, "OTEL_BSP_SCHEDULE_DELAY", EXPORT_DELAY_MS, EXPORT_DELAY_MAX_MS) / 1000,
    )
    return Tracing(Tracer(sampler, exporter.take), exporter)


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


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _service(environ: Mapping[str, str]) -> dict[str, str]:
    """The name of the service, unless the standard variables name it."""
    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return {} if named else {"service.name": "angarium"}


def _whole(environ: Mapping[str, str], name: str, default: int, most: int) -> int:
    """A whole number from 1 to `most`."""
    given = environ.get(name) or str(default)
    if given.isascii() and given.isdigit() and len(given) <= len(str(most)) and 1 <= int(given) <= most:
        return int(given)
    raise SettingsError(f"{name}: must be a whole number from 1 to {most:,}, not {given!r}")
