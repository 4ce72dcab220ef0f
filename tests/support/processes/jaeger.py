"""Runs Jaeger, and asks it for traces as its page does."""

import asyncio
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from streams.server.free_ports import free_ports
from tests.support.waiting import COMMAND_LOOK_S, until_true

JAEGER = shutil.which("jaeger")
needs_jaeger = pytest.mark.skipif(JAEGER is None, reason="jaeger is not installed: see .ci/run")

_UNUSED = (
    "admin.http.host-port", "collector.grpc-server.host-port", "collector.http-server.host-port",
    "http-server.host-port", "processor.jaeger-binary.server-host-port",
    "processor.jaeger-compact.server-host-port", "processor.zipkin-compact.server-host-port",
    "query.grpc-server.host-port",
)  # fmt: skip
"""Addresses on which it listens, too: each gets any free port."""


class JaegerSpan(Struct, frozen=True):
    """A span as Jaeger has it; `parent` is empty if there is none."""

    service: str
    name: str
    span: str
    parent: str
    tags: dict[str, Any]


class Jaeger:
    """A Jaeger on loopback: `grpc` and `http` take spans by OTLP."""

    def __init__(self, grpc: int, http: int, query: int) -> None:
        self.grpc = f"http://127.0.0.1:{grpc}"
        self.http = f"http://127.0.0.1:{http}"
        self._query = f"http://127.0.0.1:{query}"

    async def trace(self, trace: str) -> list[JaegerSpan]:
        """The spans of a trace, by their start; none as long as there is no such trace."""
        return await asyncio.to_thread(self._trace, trace)

    async def answers(self) -> bool:
        """True once it answers."""
        return await asyncio.to_thread(self._ask, "/api/services") is not None

    def _trace(self, trace: str) -> list[JaegerSpan]:
        found = self._ask(f"/api/traces/{trace}")
        if found is None:
            return []
        (known,) = found["data"]
        return [_span(each, known["processes"]) for each in sorted(known["spans"], key=_start)]

    def _ask(self, path: str) -> Any:
        """The answer; None if Jaeger does not answer, or has nothing of that name."""
        try:
            with urllib.request.urlopen(f"{self._query}{path}") as answer:
                return json.load(answer)
        except OSError:
            return None


@contextmanager
def jaeger_process(directory: Path) -> Iterator[Jaeger]:
    """A Jaeger that keeps its traces in memory, and its log in the directory."""
    assert JAEGER is not None
    grpc, http, query = free_ports(3)
    ports = dict.fromkeys(_UNUSED, 0) | {
        "collector.otlp.grpc.host-port": grpc,
        "collector.otlp.http.host-port": http,
        "query.http-server.host-port": query,
    }
    flags = [f"--{name}=127.0.0.1:{port}" for name, port in ports.items()]
    with (directory / "jaeger.log").open("wb") as log:
        process = subprocess.Popen([JAEGER, *flags], stdout=log, stderr=subprocess.STDOUT)
        try:
            yield Jaeger(grpc, http, query)
        finally:
            process.kill()  # It has nothing to keep, and takes 20 s to stop.
            process.wait()


async def ready(jaeger: Jaeger) -> None:
    """Return once Jaeger answers."""
    await until_true(jaeger.answers, COMMAND_LOOK_S)


def _start(span: dict[str, Any]) -> int:
    return int(span["startTime"])


def _span(span: dict[str, Any], processes: dict[str, Any]) -> JaegerSpan:
    parents = [each["spanID"] for each in span["references"] if each["refType"] == "CHILD_OF"]
    return JaegerSpan(
        service=processes[span["processID"]]["serviceName"],
        name=span["operationName"],
        span=span["spanID"],
        parent=parents[0] if parents else "",
        tags={each["key"]: each["value"] for each in span["tags"]},
    )
