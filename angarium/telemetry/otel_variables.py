"""The standard variables of OpenTelemetry, as far as traces and metrics share them."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal

from msgspec import Struct

from angarium import __version__
from angarium.settings import SettingsError

Signal = Literal["traces", "metrics"]
"""The kinds of data that are exported."""
STOP_MAX_S = 5.0
"""Time for the last spans and metrics, together, when a process stops."""
COMPRESSIONS = {"none": "NoCompression", "gzip": "Gzip", "deflate": "Deflate"}
"""The values of a variable, and the names that gRPC gives them: its exporter itself knows only `gzip`."""
_NEEDED = (
    "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http", "opentelemetry.exporter.otlp.proto.grpc",
)  # fmt: skip


class Collector(Struct, frozen=True):
    """The protocol that the collector speaks, and the attributes by which it knows the process.

    `grpc_compression`: the name of a member of `grpc.Compression`. HTTP exporters read theirs themselves.
    """

    grpc: bool
    attributes: dict[str, str]
    grpc_compression: str


def collector_of(signal: Signal, environ: Mapping[str, str], instance: str) -> Collector | None:
    """The collector for a signal of this instance; None if the variables ask for none.

    Raises SettingsError.
    """
    name = signal.upper()
    disabled = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    asked = "otlp" in (environ.get(f"OTEL_{name}_EXPORTER") or "otlp").replace(" ", "").split(",")
    endpoint = _first(environ, name, "ENDPOINT")
    if disabled or not asked or not endpoint:
        return None
    protocol = _first(environ, name, "PROTOCOL") or "http/protobuf"
    if protocol not in ("grpc", "http/protobuf"):
        raise SettingsError(f"OTEL_EXPORTER_OTLP_PROTOCOL: must be grpc or http/protobuf, not {protocol!r}")
    if protocol == "http/protobuf" and not endpoint.startswith(("http://", "https://")):
        # The value may contain a password, so it is not shown.
        raise SettingsError("OTEL_EXPORTER_OTLP_ENDPOINT: must begin with http:// or https://")
    compression = (_first(environ, name, "COMPRESSION") or "none").strip().lower()
    if compression not in COMPRESSIONS:
        raise SettingsError(
            f"OTEL_EXPORTER_OTLP_COMPRESSION: must be none, gzip or deflate, not {compression!r}"
        )
    if not all(map(_installed, _NEEDED)):
        remedy = "install the extra otel (see README), or unset this variable"
        raise SettingsError(f"OTEL_EXPORTER_OTLP_ENDPOINT: {remedy}")
    attributes = {"service.version": __version__, "service.instance.id": instance} | _service(environ)
    return Collector(protocol == "grpc", attributes, COMPRESSIONS[compression])


def whole(environ: Mapping[str, str], name: str, default: int, most: int) -> int:
    """A whole number from 1 to `most`. Raises SettingsError."""
    given = environ.get(name) or str(default)
    if given.isascii() and given.isdigit() and len(given) <= len(str(most)) and 1 <= int(given) <= most:
        return int(given)
    raise SettingsError(f"{name}: must be a whole number from 1 to {most:,}, not {given!r}")


def _first(environ: Mapping[str, str], signal: str, member: str) -> str:
    """The signal's own variable, or else that of all signals."""
    names = (f"OTEL_EXPORTER_OTLP_{signal}_{member}", f"OTEL_EXPORTER_OTLP_{member}")
    return next((environ[name] for name in names if environ.get(name)), "")


def _service(environ: Mapping[str, str]) -> dict[str, str]:
    """The name of the service, unless the standard variables name it."""
    attributes = environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    named = any(each.partition("=")[0].strip() == "service.name" for each in attributes)
    return {} if named or environ.get("OTEL_SERVICE_NAME") else {"service.name": "angarium"}


def _installed(module: str) -> bool:
    """True if it can be imported. `find_spec` raises if a package above it is missing."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
