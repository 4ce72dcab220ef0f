"""The alerts of `deploy/prometheus`: by Prometheus' own tool, and whether they say what to do."""

import re
import subprocess
from collections import Counter
from typing import Any

import pytest
import yaml

from tests.support.pages.pages import Page
from tests.support.processes.commands import ROOT
from tests.support.processes.deployed import check_command
from tests.support.watching.prometheus import PROMTOOL, needs_promtool
from tests.support.watching.queries import (
    ALERT_QUERIES,
    ALERTS,
    KEDA_QUERIES,
    PANEL_QUERIES,
    RULES,
    selectors,
    unknown,
)

TESTS: list[dict[str, Any]] = yaml.safe_load((RULES.parent / "rules_test.yml").read_text())["tests"]
QUERIES = {**ALERT_QUERIES, **PANEL_QUERIES, **KEDA_QUERIES}
TYPED = re.compile(r"`angarium ([^`]+)`")
TEMPLATE = re.compile(r"{{.*?}}")
NAME = re.compile(r'alertname="(\w+)"')


@needs_promtool
@pytest.mark.parametrize("command", [("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")])
def test_promtool_finds_no_fault_in_the_rules(command: tuple[str, ...]) -> None:
    assert PROMTOOL is not None
    done = subprocess.run((PROMTOOL, *command), cwd=RULES.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def expected(test: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The alerts that a test expects at each of its times, by their labels."""
    series = [look["exp_samples"] for look in test.get("promql_expr_test", ())]
    rendered = [
        [{"labels": f'alertname="{look["alertname"]}"'} for _ in look["exp_alerts"]]
        for look in test.get("alert_rule_test", ())
    ]
    return series + rendered


def test_each_alert_fires_in_a_test_and_each_test_has_a_time_without_alerts() -> None:
    looks = {test["name"]: expected(test) for test in TESTS}
    labels = [each["labels"] for found in looks.values() for look in found for each in look]
    assert {name for each in labels for name in NAME.findall(each)} == ALERT_QUERIES.keys()
    assert [name for name, found in looks.items() if [] not in found] == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: str(each["alert"]))
def test_an_alert_says_what_is_wrong_and_which_command_to_type(alert: dict[str, Any]) -> None:
    assert alert.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert alert["labels"] in ({"severity": "page"}, {"severity": "ticket"})
    said = alert["annotations"]
    assert said.keys() == {"summary", "description", "docs"}
    path, _, anchor = said["docs"].partition("#")
    assert anchor in Page(ROOT / path).anchors
    commands = TYPED.findall(TEMPLATE.sub("", said["description"]))
    assert commands, "it names no command"
    for command in commands:
        check_command(command.split())


def test_alerts_have_names_of_their_own() -> None:
    assert [name for name, count in Counter(each["alert"] for each in ALERTS).items() if count > 1] == []


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_names_metrics_and_labels_that_exist(name: str) -> None:
    assert list(unknown(QUERIES[name])) == []
    assert list(selectors(QUERIES[name]))


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("sum(angarium_shard)", ["angarium_shard"]),
        ('angarium_shards{status="running"} > 0', ["status"]),
        ("sum by (phase) (angarium_shards)", ["phase"]),
        ("rate(angarium_attempt_seconds[5m])", ["angarium_attempt_seconds"]),
        ("rate(angarium_actors_bucket[5m])", ["angarium_actors_bucket"]),
        ("sum by (le) (rate(angarium_attempt_seconds_count[5m]))", ["le"]),
        ('{__name__=~"(jetstream|nats)_stream_bytes"}', ["(jetstream|nats)_stream_bytes"]),
        ('up == 0 and on (instance, job) last_over_time(angarium_nats_connected{namespace="a"}[1h])', []),
    ],
)  # fmt: skip
def test_a_wrong_name_in_a_query_is_found(query: str, wrong: list[str]) -> None:
    assert list(unknown(query)) == wrong
