"""Rate headers as real APIs send them, in every form, and garbage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.machine.outcome import Answered
from actors.machine.pace.quota_headers import HEADER_MAX, RESET_MAX_S, Quota, quotas

NOW = 1_705_420_500.0
DATE = "Tue, 16 Jan 2024 15:55:00 GMT"


def told(**headers: str) -> tuple[Quota, ...]:
    return told_at(NOW, **headers)


def told_at(at: float, /, **headers: str) -> tuple[Quota, ...]:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return quotas(Answered(status=200, latency_ms=1.0, headers=named), at)


GITHUB = {
    "x_ratelimit_limit": "5000", "x_ratelimit_remaining": "4987", "x_ratelimit_reset": "1705421100",
    "x_ratelimit_used": "13", "x_ratelimit_resource": "core",
}  # fmt: skip
X = {"x_rate_limit_limit": "900", "x_rate_limit_remaining": "847", "x_rate_limit_reset": "1705420800"}
DISCORD = {
    "x_ratelimit_limit": "5", "x_ratelimit_remaining": "0", "x_ratelimit_reset": "1470173023.123",
    "x_ratelimit_reset_after": "64.57", "x_ratelimit_bucket": "abcd1234",
}  # fmt: skip
ZENDESK = {
    "x_rate_limit": "700", "ratelimit_limit": "700", "x_rate_limit_remaining": "699",
    "ratelimit_remaining": "699", "ratelimit_reset": "41",
    "zendesk_ratelimit_tickets_index": "total=100; remaining=99; resets=41",
}  # fmt: skip
CLOUDFLARE = {"ratelimit": '"default";r=50;t=30', "ratelimit_policy": '"default";q=1200;w=300'}
REDDIT = {"x_ratelimit_remaining": "96.0", "x_ratelimit_used": "4", "x_ratelimit_reset": "181"}
SHOPIFY = {"x_shopify_shop_api_call_limit": "32/40", "retry_after": "2.0"}
SLACK = {"retry_after": "30"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (GITHUB, Quota(4987, 600, 5000)),
        (X, Quota(847, 300, 900)),
        (DISCORD, Quota(0, 64.57, 5)),
        (ZENDESK, Quota(699, 41, 700)),
        (CLOUDFLARE, Quota(50, 30, 1200)),
        (REDDIT, Quota(96, 181)),
        (SHOPIFY, None),
        (SLACK, None),
    ],
    ids=["GitHub", "X", "Discord", "Zendesk", "Cloudflare", "Reddit", "Shopify", "Slack"],
)
def test_headers_of_real_apis_are_read(headers: dict[str, str], expected: Quota | None) -> None:
    """Shopify and Slack have no such header; their `Retry-After` is read by `retry_after_s`."""
    assert told(**headers) == (() if expected is None else (expected,))


def test_a_list_of_limits_has_a_quota_for_each() -> None:
    found = told(
        ratelimit='"burst";r=3;t=1, "daily";r=900;t=1800;pk=:YWJj:',
        ratelimit_policy='"burst";q=100;w=60,"daily";q=1000;w=86400',
    )
    assert found == (Quota(3, 1, 100), Quota(900, 1800, 1000))


def test_quotas_of_bytes_are_left_out() -> None:
    found = told(
        ratelimit='"bytes";r=3;t=1, "calls";r=9;t=2',
        ratelimit_policy='"bytes";q=65535;w=10;qu="content-bytes", "calls";q=10;qu="requests";w=10',
    )
    assert found == (Quota(9, 2, 10),)


def test_earlier_drafts_are_read() -> None:
    assert told(ratelimit="limit=100, remaining=50, reset=30", ratelimit_policy="100;w=60") == (
        Quota(50, 30, 100),
    )
    assert told(ratelimit_limit="100, 100;w=60", ratelimit_remaining="50", ratelimit_reset="30") == (
        Quota(50, 30, 100),
    )


def test_a_unix_time_in_milliseconds_is_read() -> None:
    assert told(x_ratelimit_remaining="1", x_ratelimit_reset="1705420530000") == (Quota(1, 30),)


def test_a_unix_time_is_relative_to_the_date_of_the_answer() -> None:
    """The receiver's clock is ten minutes ahead of ours."""
    assert told_at(NOW - 600, date=DATE, **X) == (Quota(847, 300, 900),)
    assert told_at(NOW - 600, date="yesterday", **X) == (Quota(847, 900, 900),)


def test_a_unix_time_in_the_past_is_now() -> None:
    assert told(x_ratelimit_remaining="0", x_ratelimit_reset="1705420000") == (Quota(0, 0),)


@pytest.mark.parametrize(
    "headers",
    [
        {"ratelimit": '"default";r=0;t=86400'},
        {"ratelimit": "limit=1, remaining=0, reset=86400"},
        {"ratelimit_remaining": "0", "ratelimit_reset": "86400"},
        {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "1999999999"},
        {"x_ratelimit_remaining": "0", "x_ratelimit_reset_after": "999999999"},
    ],
)
def test_a_reset_is_at_most_an_hour_away(headers: dict[str, str]) -> None:
    (quota,) = told(**headers)
    assert (quota.left, quota.reset_s) == (0, RESET_MAX_S)


@pytest.mark.parametrize(
    "headers",
    [
        {"ratelimit": "r=50;t=30"},
        {"ratelimit": '"default";r=50'},
        {"ratelimit": '"default";r=-1;t=30'},
        {"ratelimit": '"default";r=50;t=30,'},
        {"ratelimit": '"default;r=50;t=30'},
        {"ratelimit": '"default";r="0";t=30'},
        {"ratelimit": '"a";r=0;t=30 "b";r=0;t=30'},
        {"ratelimit": '"a";r=0;t=30, ' + '"b";r=0;t=30, ' * (HEADER_MAX // 14)},
        {"ratelimit": "limit=100, remaining=0"},
        {"ratelimit_remaining": "0"},
        {"ratelimit_remaining": "none", "ratelimit_reset": "30"},
        {"ratelimit_remaining": "-1", "ratelimit_reset": "30"},
        {"ratelimit_remaining": "0x0", "ratelimit_reset": "30"},
        {"ratelimit_remaining": "٠", "ratelimit_reset": "30"},
        {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "2018-03-13T00:00:00Z"},
        {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "Tue Feb 16 2021 09:02:42 GMT+0100"},
        {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "NaN"},
        {"x_ratelimit_remaining": "0", "x_ratelimit_reset": "1e9"},
    ],
)
def test_garbage_is_ignored(headers: dict[str, str]) -> None:
    assert told(**headers) == ()


def test_a_header_that_is_garbage_hides_no_older_one() -> None:
    assert told(ratelimit="soon", **GITHUB) == told(**GITHUB)


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=30))
def test_no_header_breaks_the_reader(ratelimit: str, policy: str, reset: str) -> None:
    for found in (
        told(ratelimit=ratelimit, ratelimit_policy=policy),
        told(x_ratelimit_remaining="1", x_ratelimit_reset=reset, date=policy),
    ):
        assert all(0 <= quota.reset_s <= RESET_MAX_S and quota.left >= 0 for quota in found)


def test_long_headers_are_read_in_time() -> None:
    """A pattern that tries every way to split a header would take years."""
    for text in ('"a";' * 250, ";a=1" * 250, '"' * 1000, "a" + ";a" * 500, "a=" * 500, '"\\' * 500):
        assert told(ratelimit=text, ratelimit_policy=text) == ()


@pytest.mark.parametrize(
    ("quota", "little"),
    [(Quota(24, 60, 100), True), (Quota(25, 60, 100), False), (Quota(10, 60), True), (Quota(11, 60), False)],
)
def test_little_is_a_quarter_of_the_quota_or_ten_requests(quota: Quota, little: bool) -> None:
    assert quota.is_nearly_used_up is little
