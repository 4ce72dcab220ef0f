"""Metrics over OTLP: their points, the variables that ask for them, and collectors that take none."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import (
    Histogram,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
)
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as PrometheusExemplar
from prometheus_client.samples import Timestamp

from actors.delivery_totals import Histogram as Counted
from angarium.settings import SettingsError
from angarium.telemetry import otel_variables
from angarium.telemetry.exemplars import Exemplar, Exemplars
from angarium.telemetry.metrics import metrics_exporter
from angarium.telemetry.metrics import open_export as exporting_module
from angarium.telemetry.metrics.data_points import PointTimes, data_points
from angarium.telemetry.metrics.families import histogram, labelled, single
from angarium.telemetry.metrics.metrics_exporter import ReadingsExporter
from angarium.telemetry.metrics.open_export import MetricsExport, exporting, open_metrics_export
from angarium.telemetry.open_tracing import open_tracing
from angarium.telemetry.otel_variables import collector_of
from tests.support.waiting import until

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


class SlowCollector(MetricExporter):
    """Answers each request once it may; refuses while it `refuses`."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses = False
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.got: list[float] = []

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object
    ) -> MetricExportResult:
        self.asked.set()
        assert self.may_answer.wait(30)
        (metric,) = metrics_data.resource_metrics[0].scope_metrics[0].metrics
        (point,) = metric.data.data_points
        assert isinstance(point, NumberDataPoint)
        self.got.append(point.value)
        return MetricExportResult.FAILURE if self.refuses else MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        """Close nothing, since nothing is open."""


class Shown(Collector):
    """Shows one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


class Readings:
    """Metrics that tell how often they were read; `broken` at the second time."""

    def __init__(self, *, broken: bool = False) -> None:
        self.count = 0
        self._broken = broken

    def collect(self) -> Iterator[Metric]:
        self.count += 1
        if self._broken and self.count == 2:
            raise RuntimeError("a defect")
        yield single("angarium_actors", self.count)


def test_points_have_the_values_of_the_page() -> None:
    counted = Counted((0.1, 1.0))
    for value in (0.05, 0.5, 0.6, 7.0):
        counted.add(value)
    told = [
        histogram("angarium_attempt_seconds", counted),
        labelled("angarium_takeovers_total", {"clean": 3, "unclean": 1}),
        labelled("angarium_dead_letters_total", {}),
    ]
    data = data_points(told, Resource({}), PointTimes(10.0, 12.5))
    spread, takeovers = data.resource_metrics[0].scope_metrics[0].metrics
    assert isinstance(spread.data, Histogram)
    (point,) = spread.data.data_points
    assert (point.bucket_counts, point.explicit_bounds) == ([1, 2, 1], [0.1, 1.0])
    assert point.count == 4
    assert point.sum == pytest.approx(8.15)
    assert (spread.name, spread.unit) == ("angarium_attempt_seconds", "s")
    assert (takeovers.name, takeovers.unit) == ("angarium_takeovers_total", "{shard}")
    values = {str(each.attributes): each for each in takeovers.data.data_points}
    clean = values["{'claim': 'clean'}"]
    assert isinstance(clean, NumberDataPoint)
    assert (len(values), clean.value) == (2, 3.0)
    assert (point.start_time_unix_nano, point.time_unix_nano) == (10_000_000_000, 12_500_000_000)


def test_an_exemplar_leads_from_a_bucket_to_its_trace_in_both_formats() -> None:
    counted, exemplars = Counted((0.1, 1.0)), Exemplars((0.1, 1.0))
    counted.add(0.5)
    exemplars.add(Exemplar(0.5, 0xABC, 0xDEF, 12.25))
    metric = histogram("angarium_attempt_seconds", counted, exemplars)
    registry = CollectorRegistry()
    registry.register(Shown(metric))
    page = openmetrics.generate_latest(registry).decode()  # type: ignore[no-untyped-call]
    (parsed,) = text_string_to_metric_families(page)  # type: ignore[no-untyped-call]
    shown = {each.labels["le"]: each.exemplar for each in parsed.samples if "le" in each.labels}
    ids = {"trace_id": f"{0xABC:032x}", "span_id": f"{0xDEF:016x}"}
    assert shown == {
        "0.1": None,
        "1.0": PrometheusExemplar(ids, 0.5, Timestamp(12, 250_000_000)),
        "+Inf": None,
    }

    data = data_points([metric], Resource({}), PointTimes(10.0, 12.5))
    request = encode_metrics(data)
    (point,) = request.resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points
    (exemplar,) = point.exemplars
    assert (exemplar.as_double, exemplar.time_unix_nano) == (0.5, 12_250_000_000)
    assert (exemplar.trace_id.hex(), exemplar.span_id.hex()) == (ids["trace_id"], ids["span_id"])


def test_a_slow_collector_gets_the_latest_reading_and_holds_nothing_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = SlowCollector()
    slow.refuses = True
    exporter = ReadingsExporter(slow, Resource({}))
    exporter.take([single("angarium_actors", 1)])
    assert slow.asked.wait(30)
    for count in (2, 3, 4):
        exporter.take([single("angarium_actors", count)])
    slow.may_answer.set()
    exporter.stop()
    assert slow.got == [1, 4]
    assert caplog.messages == ["metrics.dropped"]


def test_a_collector_that_hangs_holds_up_the_end_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_exporter, "STOP_MAX_S", 0.01)
    hanging = SlowCollector()
    exporter = ReadingsExporter(hanging, Resource({}))
    exporter.take([single("angarium_actors", 1)])
    assert hanging.asked.wait(30)
    exporter.stop()
    assert not hanging.got
    assert {each.daemon for each in threading.enumerate() if each.name == "metrics"} == {True}
    hanging.may_answer.set()


class Taken:
    """Takes readings, and has nothing to send."""

    def take(self, metrics: Sequence[Metric]) -> None:
        """Take none."""

    def stop(self) -> None:
        """Return at once."""


async def test_readings_rest_ten_times_as_long_as_each_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pauses = 0.0, list[float]()

    class Slow(Readings):
        def collect(self) -> Iterator[Metric]:
            nonlocal now
            now += 2.0
            yield from super().collect()

    class Paused(Exception):
        """The second reading rests."""

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 2:
            raise Paused

    monkeypatch.setattr(exporting_module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(Paused):
        await exporting_module._read_regularly(MetricsExport(Taken(), 5.0), Slow())
    assert pauses == [20.0, 20.0]


@pytest.mark.parametrize("broken", [False, True])
async def test_metrics_are_read_regularly_and_once_more_at_the_end(
    broken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect in a metric costs one reading."""
    collector, readings = SlowCollector(), Readings(broken=broken)
    collector.may_answer.set()
    export = MetricsExport(ReadingsExporter(collector, Resource({})), 0.001)
    async with exporting(export, readings), asyncio.timeout(30):
        await until(lambda: len(collector.got) >= 3)
    assert collector.got[-1] == readings.count
    assert caplog.messages == ["metrics.broken"] * broken


def test_without_an_endpoint_no_metrics_are_exported() -> None:
    for environ in (
        {},
        ENDPOINT | {"OTEL_SDK_DISABLED": "true"},
        ENDPOINT | {"OTEL_METRICS_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"},
    ):
        assert open_metrics_export(environ, "one") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318"),
    ],
)
def test_a_variable_of_metrics_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: "):
        open_metrics_export(ENDPOINT | {name: value}, "one")


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("compression", ["", "none", "gzip", "deflate"])
def test_either_protocol_opens_an_exporter_with_each_compression(
    protocol: str, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = ENDPOINT | {
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_METRIC_EXPORT_INTERVAL": "1500",
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
    }  # fmt: skip
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    export, tracing = open_metrics_export(environ, "one"), open_tracing(environ, "one")
    assert export is not None
    assert tracing is not None
    export.exporter.stop()
    tracing.exporter.stop()
    assert export.every_s == 1.5


@pytest.mark.parametrize(
    ("environ", "attributes"),
    [
        ({}, {"service.name": "angarium"}),
        ({"OTEL_SERVICE_NAME": "hooks"}, {}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b, service.name=hooks"}, {}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "my.service.name=x"}, {"service.name": "angarium"}),
    ],
)
def test_the_service_is_named_angarium_unless_a_variable_names_it(
    environ: dict[str, str], attributes: dict[str, str]
) -> None:
    collector = collector_of("metrics", ENDPOINT | environ, "one")
    assert collector is not None
    named = {name: value for name, value in collector.attributes.items() if name == "service.name"}
    assert named == attributes


@pytest.mark.parametrize("missing", ["sdk", "exporter", "exporter.otlp.proto.grpc"])
def test_a_part_of_the_extra_that_is_not_installed_is_asked_for(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only `opentelemetry-api` may be installed, as other packages need it."""

    def without(module: str) -> object:
        name = module.removeprefix("opentelemetry.")
        if name.startswith(f"{missing}."):
            raise ModuleNotFoundError(module)
        return None if name == missing else object()

    monkeypatch.setattr(otel_variables, "find_spec", without)
    with pytest.raises(SettingsError, match="install the extra otel"):
        open_metrics_export(ENDPOINT, "one")
