"""The form of a configuration: what is sent back as it was is the same configuration."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.console.pages.configuration.fields import (
    BURST,
    MARGIN,
    PATHS,
    RATES_BELOW,
    REST,
    ConfigurationForm,
    by_field,
    form_of,
    json_text,
    members_in,
    shown_fields,
)
from angarium.operations.configurations.changes import changes_between

FULL: dict[str, Any] = {
    "url": "https://example.com/hook?key=1", "events": ["order.>", "refund.*"], "order": "relaxed",
    "rate": {"limit": 10, "per": "second", "burst": 20}, "concurrency": 8, "timeout_s": 2.5,
    "retry": {"base_s": 2, "cap_s": 3600, "max_age_s": 172800, "max_attempts": 0, "rejected_attempts": 5},
    "filter": "amount > `100`", "format": "envelope", "handshake": "hmac", "backlog_max": 5,
    "secrets": ["…"], "headers": {"x-team": "…"}, "paused": False,
}  # fmt: skip
IN_THE_TEXT: tuple[dict[str, Any], ...] = (
    {"events": []}, {"events": [" "]}, {"events": "order.>"}, {"rate": {"limit": 1, "margin": "0.9"}},
    {"rate": {"limit": True}}, {"rate": {"burst": 2}},
    {"rate": [{"limit": 1, "margin": 0.9}, "5/m"]}, {"rate": "fast"}, {"rate": ["1/s"]},
    {"rate": [{"limit": 1, "per": "hour", "burst": 3}, "5/m"]}, {"timeout_s": True}, {"timeout_s": "15"},
    {"retry": {}}, {"retry": {"base_s": 2, "odd": 3}}, {"retry": None}, {"filter": "a\nb"},
    {"filter": "a\u202eb"}, {"order": "odd"}, {"backlog_max": 2**63 + 1}, {"url": 7}, {"url": " x"},
)  # fmt: skip


def texts(**given_texts: str) -> ConfigurationForm:
    return ConfigurationForm({"url": "https://example.com/"} | given_texts, 1)


def test_common_members_have_fields_and_others_are_in_the_text() -> None:
    form = form_of(FULL, 7)
    assert (form.revision, form.texts["rate"], form.texts[BURST]) == (7, "10/second", "20")
    assert form.texts["events"] == "order.>\nrefund.*"
    assert form.texts["retry.max_attempts"] == "0"
    assert json.loads(form.texts[REST]) == {"secrets": ["…"], "headers": {"x-team": "…"}, "paused": False}


@pytest.mark.parametrize("members", [FULL, {}, {"rate": "10/s"}, {"rate": ["10/s", "500/min"]}, *IN_THE_TEXT])
def test_a_form_that_is_sent_back_as_it_was_changes_nothing(members: dict[str, Any]) -> None:
    read, problems = members_in(form_of(members, 1))
    assert problems == []
    assert read == members


@pytest.mark.parametrize(
    ("rate", "text", "burst"),
    [({"limit": 10}, "10/second", ""), ({"limit": 0.5, "per": "minute", "burst": 3}, "0.5/minute", "3"),
     ([{"limit": 1, "per": "hour"}, "5/m"], "1/hour, 5/m", "")],
)  # fmt: skip
def test_a_rate_is_a_text_that_means_the_same(rate: Any, text: str, burst: str) -> None:
    form = form_of({"rate": rate}, 1)
    assert (form.texts["rate"], form.texts[BURST]) == (text, burst)
    assert changes_between({"rate": rate}, members_in(form)[0]) == []


def test_rates_with_a_margin_have_their_fields_and_can_be_changed_there() -> None:
    rates = [{"limit": 10, "per": "second", "margin": 0.9}, {"limit": 500, "per": "minute", "margin": 0.9}]
    form = form_of({"rate": rates}, 1)
    assert (form.texts["rate"], form.texts[MARGIN]) == ("10/second, 500/minute", "0.9")
    assert members_in(form) == ({"rate": rates}, [])
    other = ConfigurationForm({**form.texts, "rate": "5/second", BURST: "7", MARGIN: "0.8"}, 1)
    assert members_in(other)[0] == {"rate": {"limit": 5, "per": "second", "burst": 7, "margin": 0.8}}


def test_the_field_of_rates_that_stay_in_the_text_says_where_they_are() -> None:
    own_bursts = {"rate": [{"limit": 1, "per": "hour", "burst": 3}, "5/m"]}
    for members, says in ((own_bursts, True), ({"rate": "5/m"}, False), ({"headers": {"rate": "…"}}, False)):
        hints = {each.path: each.hint for each, _ in shown_fields(form_of(members, 1))}
        assert (hints["rate"] == RATES_BELOW) is says
    assert [text for each, text in shown_fields(texts(rest="{", rate="1/s")) if each.path == "rate"] == [
        "1/s"
    ]


@pytest.mark.parametrize("members", IN_THE_TEXT)
def test_a_value_that_does_not_fit_its_field_stays_in_the_text(members: dict[str, Any]) -> None:
    form = form_of(members, 1)
    assert json.loads(form.texts[REST]) == members
    assert not any(form.texts[path] for path in PATHS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
MEMBERS = sorted({path.split(".", 1)[0] for path in PATHS})


@given(st.dictionaries(st.sampled_from([*MEMBERS, "headers"]) | st.text(max_size=8), JSON, max_size=5))
def test_members_of_any_kind_come_back(members: dict[str, Any]) -> None:
    read, problems = members_in(form_of(members, 1))
    assert problems == []
    assert read == members


def test_the_text_has_no_character_that_a_browser_obeys() -> None:
    text = json_text({"a": "\x1b[2J\u202e\u2028\U000e0001é"})
    assert all(each.isprintable() or each == "\n" for each in text)
    assert "é" in text
    assert json.loads(text) == {"a": "\x1b[2J\u202e\u2028\U000e0001é"}


def test_empty_fields_are_left_out() -> None:
    assert members_in(texts(events=" \n ", rest="  ")) == ({"url": "https://example.com/"}, [])


def test_values_that_are_no_numbers_are_judged_with_the_configuration() -> None:
    members, problems = members_in(texts(timeout_s="soon", concurrency="nan", rate="fast"))
    assert problems == []
    assert (members["timeout_s"], members["concurrency"], members["rate"]) == ("soon", "nan", "fast")


@pytest.mark.parametrize(
    ("given_texts", "problem"),
    [
        ({"rest": "{"}, "rest: not valid JSON"), ({"rest": "[]"}, "rest: must be a JSON object"),
        ({"rest": '{"url": "https://other.example/"}'}, "url: is in its field and in the text"),
        ({"rest": '{"retry": {}}', "retry.base_s": "1"}, "retry: is in its field and in the text"),
        ({"rate.burst": "5"}, "rate.burst: goes with a single rate"),
        ({"rate.margin": "0.9"}, "rate.margin: goes with a rate"),
        ({"rate": "1/s, 5/min", "rate.burst": "5"}, "rate.burst: goes with a single rate"),
    ],
)  # fmt: skip
def test_a_contradiction_in_the_form_is_a_problem(given_texts: dict[str, str], problem: str) -> None:
    _, problems = members_in(texts(**given_texts))
    (found,) = problems
    assert found.startswith(problem)


def test_problems_are_by_field() -> None:
    found = by_field([
        "url: has no host", "rate.burst: must be a whole number", "rate[1].limit: must be a number",
        "events[0]: not a wildcard", "retry.cap_s: too low", "retry: must be an object",
        "headers.x-a: not allowed", "secrets[0]: too short", "another was faster: review it",
        "rest: not JSON",
    ])  # fmt: skip
    assert found == {
        "url": "has no host", BURST: "must be a whole number", "rate": "rate[1].limit: must be a number",
        "events": "events[0]: not a wildcard", "retry.cap_s": "too low",
        REST: "retry: must be an object; headers.x-a: not allowed; secrets[0]: too short; "
        "another was faster: review it; not JSON",
    }  # fmt: skip
