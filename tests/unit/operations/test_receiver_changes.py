"""The changes that `receiver put` shows, and the losses that it refuses."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.logs import HIDDEN
from angarium.operations.configurations.changes import changes_between
from angarium.operations.configurations.masks import masked, unmasked
from angarium.operations.failures import OperationError

URL = {"url": "https://example.com/hook"}
UNTIL = "2026-11-23T12:00:00Z"


def told(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [str(each) + " (lost)" * each.lost for each in changes_between(URL | before, URL | after)]


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({}, {"url": "https://a/?k=hush"}, ["url: https://example.com/hook → https://a/?…"]),
        ({"order": "relaxed"}, {}, ["order: relaxed → strict (default) (lost)"]),
        ({"order": "relaxed"}, {"order": "strict"}, ["order: relaxed → strict"]),
        ({"rate": "10/s"}, {}, ["rate: 10/second → default (lost)"]),
        ({"rate": "10/s"}, {"rate": None}, ["rate: 10/second → none"]),
        ({}, {"rate": {"limit": 1.5, "per": "hour", "burst": 7}}, ["rate: default → 1.5/hour, burst 7"]),
        (
            {"rate": {"limit": 10, "per": "second", "burst": 1}},
            {"rate": "5/second"},
            ["rate: 10/second, burst 1 → 5/second, burst 5"],
        ),
        (
            {"rate": ["10/s", {"limit": 500, "per": "minute", "burst": 20, "margin": 0.9}]},
            {"rate": ["10/s", "500/min"]},
            ["rate: 10/second and 500/minute, burst 18, margin 0.9 → 10/second and 500/minute"],
        ),
        ({"paused": True}, {}, ["paused: true → false (default) (lost)"]),
        ({"events": ["a.>", "b"]}, {}, ["events: a.>, b → > (default) (lost)"]),
        ({}, {"events": []}, ["events: > (default) → none"]),
        (
            {"retry": {"base_s": 5, "max_attempts": 9}},
            {"retry": {"base_s": 7}},
            ["retry.base_s: 5 → 7", "retry.max_attempts: 9 → 0 (default) (lost)"],
        ),
        (
            {"adaptive": {"smart": True, "rate_max": 50}},
            {"adaptive": {"rate_max": 20}},
            ["adaptive.smart: true → false (default) (lost)", "adaptive.rate_max: 50 → 20"],
        ),
        ({"offline": {"after_s": 5}}, {}, ["offline.after_s: 5 → 300 (default) (lost)"]),
        ({"headers": {"X-A": "hush"}}, {}, ["headers.x-a: … → none (lost)"]),
        ({"headers": {"X-A": "hush"}}, {"headers": {"x-a": "other"}}, ["headers.x-a: … → another value"]),
        ({}, {"headers": {"x-a": "hush"}}, ["headers.x-a: none → …"]),
        ({"secrets": ["hush"]}, {"secrets": ["new", "hush"]}, ["secrets: 1 → 2 (1 new)"]),
        ({"secrets": ["new", "hush"]}, {"secrets": ["new"]}, ["secrets: 2 → 1 (lost)"]),
        ({"secrets": ["hush"]}, {"secrets": ["new"]}, ["secrets: 1 → 1 (1 new) (lost)"]),
        ({"secrets": ["hush"]}, {"secrets": []}, ["secrets: 1 → none (lost)"]),
        ({}, {"secrets": ["hush"]}, ["secrets: none → 1"]),
        (
            {"secret": "hush", "retry": {"x": "hush"}},
            {},
            ["secret: … → none (lost)", "retry.x: … → none (lost)"],
        ),
        (
            {},
            {"signature": {"header": "x-sig", "encoding": "hex", "secret": "hush"}},
            ["signature.header: none → x-sig", "signature.secret: none → …"],
        ),
        (
            {"signature": {"header": "x-sig", "secret": "hush"}},
            {"signature": {"header": "x-sig", "secret": "new", "value": "v1={hmac}"}},
            ["signature.secret: … → another value", "signature.value: {hmac} (default) → v1={hmac}"],
        ),
        ({"signature": {"header": "x-sig"}}, {"signature": None}, ["signature.header: x-sig → none (lost)"]),
        ({"format": "envelope"}, {}, ["format: envelope → raw (default) (lost)"]),
        ({"events": ["x" * 80]}, {"events": ["\x1b[2J"]}, [f"events: {'x' * 59}… → \\x1b[2J"]),
    ],
)
def test_each_change_in_words(before: dict[str, Any], after: dict[str, Any], changes: list[str]) -> None:
    assert told(before, after) == changes
    assert "hush" not in "".join(told(before, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"order": "strict", "timeout_s": 15, "rate": None, "events": [">"]}, {}),
        ({"rate": "10/s"}, {"rate": {"limit": 10.0, "per": "second"}}),
        ({"rate": {"limit": 10, "burst": 10}}, {"rate": "10/second"}),
        ({"retry": {"cap_s": 3600.0}}, {"retry": {}}),
        ({"headers": {"X-A": "1"}}, {"headers": {"x-a": "1"}}),
        ({"secrets": []}, {}),
    ],
)
def test_an_equivalent_value_is_not_a_change(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert told(before, after) == told(after, before) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["url", "rate", "retry", "offline", "headers", "secrets", "events", "order", "colour"]
)
STORED = st.dictionaries(NAMES, JSON, max_size=5)


@given(before=STORED, after=STORED)
def test_every_stored_configuration_can_be_compared(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert changes_between(before, before) == []
    assert all(str(each).isprintable() for each in changes_between(before, after))


# ---- masks

SECRETS = st.lists(st.text("ab", min_size=1, max_size=3).map("whsec_".__add__), max_size=3)
HEADERS = st.dictionaries(st.text("xyz", min_size=1, max_size=3), st.text("ab", max_size=3), max_size=3)


@given(secrets=SECRETS, headers=HEADERS)
def test_a_shown_configuration_can_be_put_again(secrets: list[str], headers: dict[str, str]) -> None:
    stored = URL | {"secrets": secrets, "headers": headers}
    shown = json.loads(json.dumps(masked(stored)))
    assert all(each == HIDDEN for each in [*shown["secrets"], *shown["headers"].values()])
    assert unmasked("acme.x", shown, stored) == stored


def test_a_new_secret_may_stand_before_what_is_hidden() -> None:
    filled = unmasked("acme.x", {"secrets": ["new", HIDDEN, HIDDEN]}, {"secrets": ["b", "a"]})
    assert filled == {"secrets": ["new", "b", "a"]}


PAIR = ("whsk_" + "A" * 43 + "=", "whpk_O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik=")


def test_a_public_key_is_shown_for_its_secret_and_stands_for_it_in_any_place() -> None:
    stored = {"secrets": [PAIR[0], "hush"], "old_secrets": [{"secret": PAIR[0], "until": UNTIL}]}
    shown = masked(stored)
    assert shown == {
        "secrets": [PAIR[1], HIDDEN], "old_secrets": [{"secret": PAIR[1], "until": UNTIL}],
    }  # fmt: skip
    assert unmasked("acme.billing", shown, stored) == stored
    turned = unmasked("acme.billing", {"secrets": [HIDDEN, PAIR[1]]}, stored)
    assert turned == {"secrets": ["hush", PAIR[0]]}
    assert unmasked("acme.billing", {"secrets": [HIDDEN, HIDDEN]}, stored)["secrets"] == stored["secrets"]
    later = {"old_secrets": [{"secret": PAIR[1], "until": "2027-01-01T00:00:00Z"}]}
    [old] = unmasked("acme.billing", later, stored)["old_secrets"]
    assert old == {"secret": PAIR[0], "until": "2027-01-01T00:00:00Z"}


def test_a_public_key_of_no_stored_secret_is_left_for_the_configurations_check() -> None:
    given = {"secrets": [PAIR[1]]}
    assert unmasked("acme.billing", given, {"secrets": ["hush"]}) == given


def test_a_signature_is_shown_without_its_key_which_can_be_put_again() -> None:
    stored = {"signature": {"header": "x-sig", "secret": "hush", "value": "v1={hmac}", "secrte": "hush"}}
    shown = masked(stored)
    assert shown["signature"] == {
        "header": "x-sig", "secret": HIDDEN, "value": "v1={hmac}", "secrte": HIDDEN,
    }  # fmt: skip
    filled = unmasked("acme.billing", {"signature": {"header": "x", "secret": HIDDEN}}, stored)
    assert filled == {"signature": {"header": "x", "secret": "hush"}}
    assert masked({"signature": ["hush"]}) == {"signature": [HIDDEN]}


def test_a_hidden_header_is_known_in_any_case() -> None:
    filled = unmasked("acme.x", {"headers": {"x-a": HIDDEN, "b": "1"}}, {"headers": {"X-A": "hush"}})
    assert filled == {"headers": {"x-a": "hush", "b": "1"}}


@pytest.mark.parametrize(
    ("given", "stored", "sentence"),
    [
        (
            {"secrets": [HIDDEN]},
            {},
            "secret, but none is stored for acme.x: leave secrets out to get a new one",
        ),
        ({"secrets": [HIDDEN]}, {"secrets": "x"}, "none is stored for acme.x"),
        (
            {"secrets": [HIDDEN]},
            {"secrets": ["b", "a"]},
            "1 is given and acme.x has 2; leave secrets out to keep them",
        ),
        (
            {"headers": {"x-a": HIDDEN}},
            {},
            "headers.x-a: … stands for a stored value, and acme.x has",
        ),
        (
            {"signature": {"header": "x", "secret": HIDDEN}},
            {"signature": {"header": "x"}},
            "signature.secret: … stands for the stored key, and acme.x has none",
        ),
        ({"headers": {"x-a": HIDDEN}}, {"headers": {"x-b": "1"}}, "no such header; write the value itself"),
    ],
)
def test_a_mask_for_nothing_is_refused(given: dict[str, Any], stored: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OperationError) as refused:
        unmasked("acme.x", given, stored)
    assert sentence in str(refused.value)


def test_masked_hides_the_url_of_a_proxy_in_place_of_its_name() -> None:
    """`masked`: it may hold a password, put straight into the bucket."""
    assert masked(URL | {"proxy": "http://user:hush@proxy:3128"})["proxy"] == HIDDEN
    assert masked(URL | {"proxy": "office"})["proxy"] == "office"
