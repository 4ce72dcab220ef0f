"""The table of metrics: its names follow the conventions, and the reference page is made of it."""

import re

import pytest

from actors.delivery_totals import Histogram
from angarium.telemetry.metrics.description import MetricDescription, MetricKind
from angarium.telemetry.metrics.families import histogram, labelled
from angarium.telemetry.metrics.reference_page import reference_page
from angarium.telemetry.metrics.table import BY_NAME, METRICS
from tests.support.processes.commands import ROOT

UNITS_IN_NAMES = {"s": "seconds", "By": "bytes"}
UCUM = re.compile(r"1|s|By|\{[a-z]+\}")


def test_the_reference_page_is_the_one_that_the_table_makes() -> None:
    """To write it again: python -m angarium.telemetry.metrics.reference_page >docs/metrics.md"""
    assert (ROOT / "docs" / "metrics.md").read_text() == reference_page()


@pytest.mark.parametrize("metric", METRICS, ids=lambda each: each.name)
def test_names_and_units_follow_the_conventions_of_prometheus_and_opentelemetry(
    metric: MetricDescription,
) -> None:
    assert re.fullmatch(r"angarium_[a-z0-9]+(_[a-z0-9]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert metric.name.endswith("_info") == (metric.kind is MetricKind.INFO)
    assert UCUM.fullmatch(metric.unit)
    words = metric.name.removesuffix("_total").split("_")
    in_name = {unit for unit, word in UNITS_IN_NAMES.items() if words[-1] == word}
    assert in_name == {metric.unit} & UNITS_IN_NAMES.keys()
    assert metric.help.endswith(".")
    assert not {"le", "quantile"} & set(metric.label_names)


def test_the_table_names_each_metric_once() -> None:
    assert len(BY_NAME) == len(METRICS)


def test_a_metric_that_is_not_in_the_table_cannot_be_told() -> None:
    with pytest.raises(KeyError):
        histogram("angarium_unheard_of_seconds", Histogram((1.0,)))
    with pytest.raises(ValueError, match="zip"):
        labelled("angarium_actors", {"acme": 1})
