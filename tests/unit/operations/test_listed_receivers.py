"""Wrong configurations in `angarium receiver list`."""

import json

import pytest

from angarium.operations.receiver_list.listing import ReceiverFindings, listed


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hush@ex℀mple.com/",
        "https://host:hush/",
        "https://user:hu/hush@example.com/",
        "https://user:hush@example.com/",
        "https://example.com/?token=hush",
    ],
)
def test_a_password_in_a_url_is_not_listed(url: str) -> None:
    row = listed(ReceiverFindings("acme.billing", json.dumps({"url": url}).encode()))
    assert "hush" not in str(row)


def test_a_url_that_can_be_delivered_to_is_listed() -> None:
    row = listed(ReceiverFindings("acme.billing", b'{"url": "https://example.com/hook"}'))
    assert (row.url, row.problem) == ("https://example.com/hook", None)


def test_a_rate_that_is_not_a_number_hides_no_other_receiver() -> None:
    row = listed(ReceiverFindings("acme.billing", b'{"rate": {"limit": ' + b"9" * 400 + b"}}"))
    assert row.rate == "?"
    assert row.problem


def test_a_rate_is_listed_with_its_margin() -> None:
    row = listed(ReceiverFindings("acme.billing", b'{"rate": {"limit": 9, "per": "hour", "margin": 0.9}}'))
    assert row.rate == "9/hour, margin 0.9"
    row = listed(ReceiverFindings("acme.billing", b'{"rate": {"limit": 9, "margin": "much"}}'))
    assert row.rate == "9/second, margin ?"


def test_rates_that_hold_together_are_listed_as_such() -> None:
    row = listed(ReceiverFindings("acme.billing", b'{"rate": ["10/s", {"limit": 500, "per": "minute"}]}'))
    assert row.rate == "10/second and 500/minute"
