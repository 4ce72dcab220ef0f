"""OpenTelemetry logs no secret of its variables, and one line for many batches that fail alike."""

import os
import socket
from collections import Counter

import pytest

from angarium.telemetry import otel_log
from angarium.telemetry.metrics.families import single
from angarium.telemetry.metrics.open_export import open_metrics_export
from angarium.telemetry.open_tracing import open_tracing
from tests.support.otlp_collector import span
from tests.support.secrecy import secrets_in
from tests.support.waiting import until

BATCHES = 3
PASSWORD = "hush-hush"


@pytest.fixture(autouse=True)
def nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel_log, "_limited", otel_log._LimitedLines())


@pytest.mark.parametrize(("protocol", "timeout"), [("http/protobuf", "0.2"), ("grpc", "1")])
async def test_a_refused_connection_is_logged_once_and_without_secrets(
    protocol: str, timeout: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://user:{PASSWORD}@{place}/T0KEN?key=T0KEN")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"api-key {PASSWORD},key=T0KEN")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", timeout)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
        tracing, export = open_tracing(os.environ, "one"), open_metrics_export(os.environ, "one")
        assert tracing is not None
        assert export is not None
        export.exporter.take([single("angarium_actors", 1)])
        exporter = tracing.exporter
        for count in range(1, BATCHES + 1):
            exporter.take(span)
            await until(lambda count=count: exporter.dropped == count)  # type: ignore[misc]
        exporter.stop()
        export.exporter.stop()
    lines = [each for each in caplog.records if each.name.startswith(("opentelemetry", "urllib3"))]
    assert lines
    assert not [each for each in lines if each.exc_info]
    assert not secrets_in(caplog.text)
    assert "T0KEN" not in caplog.text
    told = Counter((each.name, each.msg.partition("retrying")[0]) for each in lines)
    assert max(told.values()) == 1, told
