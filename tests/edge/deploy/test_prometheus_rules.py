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
from tests.support.watching.queries import ALERTS, OF_ALERTS, OF_KEDA, OF_PANELS, RULES, selectors, unknown

TESTS: list[dict[str, Any]] = yaml.safe_load((RULES.parent / "rules_test.yml").read_text())["tests"]
QUERIES = {**OF_ALERTS, **OF_PANELS, **OF_KEDA}
TYPED = re.compile(r"`angarium ([^`]+)`")
TEMPLATE = re.compile(r"{{.*?}}")


@needs_promtool
@pytest.mark.parametrize("command", [("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")])
def test_promtool_finds_no_fault_in_the_rules(command: tuple[str, ...]) -> None:
    assert PROMTOOL is not None
    done = subprocess.run((PROMTOOL, *command), cwd=RULES.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_in_a_test_and_does_not_in_another_look() -> None:
    looks = [look for test in TESTS for look in test.get("promql_expr_test", ())]
    rendered = [look for test in TESTS for look in test.get("alert_rule_test", ())]
    fires = {look["alertname"] for look in rendered if look["exp_alerts"]}
    for look in looks:
        for sample in look["exp_samples"]:
            fires |= set(re.findall(r'alertname="(\w+)"', sample["labels"]))
    assert fires == {each["alert"] for each in ALERTS}
    quiet = [test["name"] for test in TESTS if not any(_is_quiet(test, kind) for kind in _EXPECTED)]
    assert quiet == []


_EXPECTED = {"promql_expr_test": "exp_samples", "alert_rule_test": "exp_alerts"}


def _is_quiet(test: dict[str, Any], kind: str) -> bool:
    """True if a look of a test expects no alert."""
    return any(not look[_EXPECTED[kind]] for look in test.get(kind, ()))


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
def test_a_query_names_metrics_and_labels_that_there_are(name: str) -> None:
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
