"""The queries of the alerts, of the dashboard and of KEDA, and the series that they ask for."""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml
from msgspec import Struct

from angarium.telemetry.metrics.description import MetricDescription, MetricKind
from angarium.telemetry.metrics.table import BY_NAME
from tests.support.processes.roles import DEPLOY

RULES = DEPLOY / "prometheus" / "rules.yml"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "angarium.json").read_text())
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
]
PANELS: list[dict[str, Any]] = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
_SCALED = yaml.safe_load((DEPLOY / "kubernetes" / "keda" / "scaled-object.yaml").read_text())

ALERT_QUERIES: dict[str, str] = {each["alert"]: each["expr"] for each in ALERTS}
PANEL_QUERIES: dict[str, str] = {
    f"{panel['title']} {target['refId']}": target["expr"] for panel in PANELS for target in panel["targets"]
}
KEDA_QUERIES: dict[str, str] = {
    each["name"]: each["metadata"]["query"] for each in _SCALED["spec"]["triggers"]
}

NOT_OURS = {
    "up": {"instance", "job"},
    "ALERTS": {"alertname", "alertstate"},
    "process_cpu_seconds_total": set[str](),
    "process_resident_memory_bytes": set[str](),
    **{
        f"(jetstream|nats)_stream_{each}": {"stream_name"}
        for each in ("total_bytes", "limit_bytes", "last_seq")
    },
}
"""Metrics that others tell, and their labels: Prometheus, the library of the process, NATS' exporter."""
OF_THE_SCRAPE = {"namespace", "job", "instance"}
"""Labels that Prometheus gives to all that it scrapes."""
_HISTOGRAM = re.compile(r"(.+)_(bucket|sum|count)")
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_SELECTOR = re.compile(r"([A-Za-z_]\w*)?(\{[^}]*\})|\b([A-Za-z_]\w*)\b(?!\s*\()")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
_KEYWORDS = {"and", "or", "unless", "offset", "bool", "group_left", "group_right"}


class Selector(Struct, frozen=True):
    """A choice of series: by the name of a metric, or the pattern of its name, and by labels."""

    text: str
    metric: str
    labels: frozenset[str]


def selectors(query: str) -> Iterator[Selector]:
    """The choices of series in a query, in its order."""
    for found in _SELECTOR.finditer(_RANGE.sub(" ", _GROUPING.sub(" ", query))):
        name = found[1] or found[3] or ""
        matchers = dict(_MATCHER.findall(found[2] or ""))
        metric = name or matchers["__name__"]
        if metric not in _KEYWORDS:
            yield Selector(found[0], metric, frozenset(matchers) - {"__name__"})


def unknown(query: str) -> Iterator[str]:
    """Lists metrics in a query that do not exist, and labels that none of its metrics has."""
    grouped = {label.strip() for labels in _GROUPING.findall(query) for label in labels.split(",")}
    has = set(OF_THE_SCRAPE)
    for selector in selectors(query):
        labels = NOT_OURS.get(selector.metric)
        if labels is None:
            labels = _labels_of(selector.metric)
        if labels is None:
            yield selector.metric
        else:
            yield from sorted(selector.labels - labels - OF_THE_SCRAPE)
            has |= labels
    yield from sorted(grouped - has)


def _labels_of(series: str) -> set[str] | None:
    """The labels of a series of ours; None if there is no such series."""
    part = _HISTOGRAM.fullmatch(series)
    if part and _is_histogram(BY_NAME.get(part[1])):
        return {*BY_NAME[part[1]].label_names, *(["le"] if part[2] == "bucket" else [])}
    described = BY_NAME.get(series)
    return None if described is None or _is_histogram(described) else set(described.label_names)


def _is_histogram(described: MetricDescription | None) -> bool:
    return described is not None and described.kind is MetricKind.HISTOGRAM
