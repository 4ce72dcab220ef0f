"""Metrics as OTLP sends them: the same names and values as in the text for Prometheus.

The points are made of what a scrape would read, so nothing is counted a second time; all are cumulative.
`docs/decisions/metrics-over-otlp.md` says why there are no observable instruments.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import AggregationTemporality as Temporality
from opentelemetry.sdk.metrics.export import (
    Gauge,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as SdkHistogram
from opentelemetry.sdk.metrics.export import Metric as SdkMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric
from prometheus_client.samples import Exemplar as PrometheusExemplar
from prometheus_client.samples import Sample

from angarium import __version__
from angarium.telemetry.metrics.table import BY_NAME

_SUFFIXES = {"counter": "_total", "info": "_info"}
_UNITS = {"seconds": "s", "bytes": "By"}
Labels = tuple[tuple[str, str], ...]


class PointTimes:
    """When a process began to count, and when the points were read, in nanoseconds since the epoch."""

    def __init__(self, began_at: float, read_at: float) -> None:
        self.began = int(began_at * 1e9)
        self.read = int(read_at * 1e9)


def data_points(metrics: Iterable[Metric], resource: Resource, times: PointTimes) -> MetricsData:
    """The metrics as one request to a collector has them."""
    converted = [_metric(each, times) for each in metrics if each.samples]
    scope = ScopeMetrics(InstrumentationScope("angarium", __version__), converted, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(metric: Metric, times: PointTimes) -> SdkMetric:
    name = metric.name + _SUFFIXES.get(metric.type, "")
    data: Sum | Gauge | SdkHistogram
    match metric.type:
        case "histogram":
            data = SdkHistogram(list(_distributions(metric, times)), Temporality.CUMULATIVE)
        case "counter":
            data = Sum(_numbers(metric, name, times), Temporality.CUMULATIVE, is_monotonic=True)
        case _:
            data = Gauge(_numbers(metric, name, times))
    return SdkMetric(name, metric.documentation, _unit(name), data)


def _unit(name: str) -> str:
    """The unit from the table; of a metric of the process, that in its name."""
    if (described := BY_NAME.get(name)) is not None:
        return described.unit
    return _UNITS.get(name.removesuffix("_total").rpartition("_")[2], "")


def _numbers(metric: Metric, name: str, times: PointTimes) -> list[NumberDataPoint]:
    """The points of a metric, all of one type: a collector may refuse a series that changes its type."""
    return [
        NumberDataPoint(dict(sample.labels), times.began, times.read, float(sample.value))
        for sample in metric.samples
        if sample.name == name
    ]


def _distributions(metric: Metric, times: PointTimes) -> Iterator[HistogramDataPoint]:
    """A point for each set of labels. In Prometheus form, a bucket includes all lower ones."""
    by_labels: dict[Labels, list[Sample]] = {}
    for sample in metric.samples:
        labels = tuple(each for each in sample.labels.items() if each[0] != "le")
        by_labels.setdefault(labels, []).append(sample)
    for labels, samples in by_labels.items():
        buckets = [each for each in samples if each.name.endswith("_bucket")]
        (total,) = (each.value for each in samples if each.name.endswith("_sum"))
        up_to = [int(each.value) for each in buckets]
        counts = [count - lower for count, lower in zip(up_to, [0, *up_to], strict=False)]
        bounds = [float(each.labels["le"]) for each in buckets[:-1]]
        unknown = cast(float, None)  # The encoder leaves out what is None; the extremes are not counted.
        yield HistogramDataPoint(
            dict(labels), times.began, times.read, up_to[-1], total, counts, bounds, unknown, unknown,
            [_exemplar(each.exemplar) for each in buckets if each.exemplar is not None],
        )  # fmt: skip


def _exemplar(shown: PrometheusExemplar) -> Exemplar:
    trace, span = int(shown.labels["trace_id"], 16), int(shown.labels["span_id"], 16)
    return Exemplar({}, shown.value, int(cast(float, shown.timestamp) * 1e9), span, trace)
