"""Metrics as `prometheus_client` writes them, each with the text of the table."""

from collections.abc import Iterable, Mapping
from itertools import accumulate, repeat
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.samples import Exemplar as PrometheusExemplar

from actors.delivery_totals import Histogram
from angarium.telemetry.exemplars import Exemplar, Exemplars
from angarium.telemetry.metrics.description import MetricDescription, MetricKind
from angarium.telemetry.metrics.table import BY_NAME

LabelValues = TypeVar("LabelValues", bound=str | tuple[str, ...])
"""The value of a metric's only label, or the values of all of them, in their order."""
NO_LABELS: tuple[str, ...] = ()


def single(name: str, value: float) -> Metric:
    """A metric with one value."""
    return labelled(name, {NO_LABELS: value})


def labelled(name: str, values: Mapping[LabelValues, float]) -> Metric:
    """A metric with a value for each of these labels."""
    described = BY_NAME[name]
    family = _empty(described)
    for given, value in values.items():
        family.add_metric(_checked(described, given), value)
    return family


def info(name: str, values: Mapping[str, str]) -> Metric:
    """A metric whose labels hold the information."""
    return InfoMetricFamily(name.removesuffix("_info"), BY_NAME[name].help, dict(values))


def histogram(name: str, counted: Histogram, exemplars: Exemplars | None = None) -> Metric:
    """A distribution in Prometheus form: each bucket counts all values at or below its bound."""
    return histograms(name, {NO_LABELS: counted}, exemplars)


def histograms(
    name: str, counted: Mapping[LabelValues, Histogram], exemplars: Exemplars | None = None
) -> Metric:
    """A metric with a distribution for each of these labels."""
    shown: Iterable[PrometheusExemplar | None] = repeat(None)
    if exemplars is not None:
        shown = [None if each is None else _exemplar(each) for each in exemplars.by_bucket]
    described = BY_NAME[name]
    family = HistogramMetricFamily(name, described.help, labels=described.label_names)
    for given, each in counted.items():
        bounds = [*map(str, each.bounds), "+Inf"]
        buckets = [
            (bound, count) if exemplar is None else (bound, count, exemplar)
            for bound, count, exemplar in zip(bounds, accumulate(each.counts), shown, strict=False)
        ]
        family.add_metric(_checked(described, given), buckets, each.sum)
    return family


def _exemplar(exemplar: Exemplar) -> PrometheusExemplar:
    labels = {"trace_id": f"{exemplar.trace:032x}", "span_id": f"{exemplar.span:016x}"}
    return PrometheusExemplar(labels, exemplar.value, exemplar.at)


def _empty(described: MetricDescription) -> CounterMetricFamily | GaugeMetricFamily:
    if described.kind is MetricKind.COUNTER:
        name = described.name.removesuffix("_total")
        return CounterMetricFamily(name, described.help, labels=described.label_names)
    return GaugeMetricFamily(described.name, described.help, labels=described.label_names)


def _checked(described: MetricDescription, given: str | tuple[str, ...]) -> list[str]:
    """The values of the labels, as many as the table names."""
    values = (given,) if isinstance(given, str) else given
    return [value for _, value in zip(described.label_names, values, strict=True)]
