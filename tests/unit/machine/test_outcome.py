"""Outcomes of answers, and how long a receiver that asks for a pause is left alone.

The table of `Retry-After` values holds what the test suites of other dispatchers (svix, hook0) agree on, and
where RFC 9110 says more, what it says.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.machine.outcome import (
    EXCERPT_BODY_MAX,
    EXCERPT_HEADERS_MAX,
    REJECTED,
    RETRY_AFTER_MAX_S,
    Answered,
    Failed,
    Verdict,
    is_aborted,
    judge,
    retry_after_s,
)

NOW = 1_700_000_000.0
DAY_S = 86400.0


def answer(
    status: int = 429, *, retry_after: str | None = None, date: str | None = None, **more: str
) -> Answered:
    """An answer; in the names of `more` headers `_` stands for `-`."""
    headers: tuple[tuple[str, str | None], ...] = (
        ("content-type", "text/plain"), ("retry-after", retry_after), ("date", date),
        *((name.replace("_", "-"), value) for name, value in more.items()),
    )  # fmt: skip
    present = tuple((name, value) for name, value in headers if value is not None)
    return Answered(status=status, latency_ms=1.0, headers=present)


def http_date(at: float) -> str:
    return format_datetime(datetime.fromtimestamp(at, UTC), usegmt=True)


@pytest.fixture(params=["UTC", "America/New_York"])
def timezone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A date means the same wherever the node runs."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.DELIVERED), (204, Verdict.DELIVERED), (299, Verdict.DELIVERED),
        (100, Verdict.RETRY), (199, Verdict.RETRY), (300, Verdict.RETRY), (301, Verdict.RETRY),
        (308, Verdict.RETRY), (401, Verdict.RETRY), (403, Verdict.RETRY), (404, Verdict.RETRY),
        (408, Verdict.RETRY), (500, Verdict.RETRY), (502, Verdict.RETRY), (503, Verdict.RETRY),
        (504, Verdict.RETRY), (999, Verdict.RETRY),
        (429, Verdict.THROTTLED), (410, Verdict.GONE),
        (400, Verdict.REJECTED), (409, Verdict.REJECTED), (413, Verdict.REJECTED), (415, Verdict.REJECTED),
        (422, Verdict.REJECTED), (431, Verdict.REJECTED),
    ],
)  # fmt: skip
def test_the_status_alone_decides(status: int, verdict: Verdict) -> None:
    assert judge(answer(status), NOW) is verdict


@pytest.mark.parametrize(
    ("status", "headers", "verdict", "aborted"),
    [
        (500, {"angarium_abort": "true"}, Verdict.REJECTED, True),
        (302, {"angarium_abort": "true"}, Verdict.REJECTED, True),
        (422, {"angarium_abort": "true"}, Verdict.REJECTED, True),
        (200, {"angarium_abort": "true"}, Verdict.DELIVERED, False),
        (429, {"angarium_abort": "true"}, Verdict.THROTTLED, False),
        (503, {"angarium_abort": "true", "retry_after": "5"}, Verdict.THROTTLED, False),
        (503, {"angarium_abort": "true"}, Verdict.REJECTED, True),
        (410, {"angarium_abort": "true"}, Verdict.GONE, True),
        (500, {"angarium_abort": "false"}, Verdict.RETRY, False),
        (500, {"angarium_abort": ""}, Verdict.RETRY, False),
        (422, {}, Verdict.REJECTED, False),
        (500, {"angarium_disable": "true"}, Verdict.GONE, False),
        (429, {"angarium_disable": "true", "retry_after": "5"}, Verdict.GONE, False),
        (200, {"angarium_disable": "true"}, Verdict.DELIVERED, False),
        (500, {"angarium_disable": "1"}, Verdict.RETRY, False),
        (400, {"angarium_disable": "true", "angarium_abort": "true"}, Verdict.GONE, True),
    ],
)  # fmt: skip
def test_headers_of_an_answer_may_steer(
    status: int, headers: dict[str, str], verdict: Verdict, aborted: bool
) -> None:
    outcome = answer(status, **headers)
    assert judge(outcome, NOW) is verdict
    assert is_aborted(outcome, verdict) is aborted


def test_without_an_answer_nothing_is_aborted() -> None:
    assert not is_aborted(Failed(error="timeout", detail="15 s", latency_ms=15000.0), Verdict.RETRY)


def test_every_answer_that_rejects_is_in_the_table() -> None:
    assert {status for status in range(1000) if judge(answer(status), NOW) is Verdict.REJECTED} == REJECTED


def test_no_answer_is_retried_with_any_beginning() -> None:
    assert judge(Failed(error="timeout", detail="15 s", latency_ms=15000.0), NOW) is Verdict.RETRY
    assert judge(Failed(error="headers", detail="64 KiB", latency_ms=1.0, status=200), NOW) is Verdict.RETRY


@pytest.mark.parametrize(
    ("status", "retry_after", "verdict"),
    [
        (503, "30", Verdict.THROTTLED), (503, "soon", Verdict.RETRY), (503, "", Verdict.RETRY),
        (429, "soon", Verdict.THROTTLED), (500, "30", Verdict.RETRY), (502, "30", Verdict.RETRY),
        (200, "30", Verdict.DELIVERED), (410, "30", Verdict.GONE), (400, "30", Verdict.REJECTED),
    ],
)  # fmt: skip
def test_only_429_and_503_can_ask_for_a_pause(status: int, retry_after: str, verdict: Verdict) -> None:
    assert judge(answer(status, retry_after=retry_after), NOW) is verdict


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120), ("  30  ", 30), ("0", 0), ("007", 7), ("120.1", 121), ("120.6", 121), ("0.001", 1),
        ("86400", DAY_S), ("86401", DAY_S), ("99999999999999999999", DAY_S), ("1" + "0" * 30, DAY_S),
        ("9" * 5000, DAY_S), ("0." + "9" * 400, 1),
        ("", None), (" ", None), ("soon", None), ("-1", None), ("+1", None), ("1e3", None), ("0x10", None),
        ("1_000", None), ("1,000", None), ("1 2", None), (".5", None), ("5.", None), ("30s", None),
        ("30;q=1", None), ("inf", None), ("nan", None), ("٣٠", None), ("²", None), ("30\x00", None),
    ],
)  # fmt: skip
def test_seconds_are_rounded_up_and_capped_and_garbage_is_ignored(text: str, seconds: float | None) -> None:
    assert retry_after_s(answer(retry_after=text), NOW) == seconds


def test_without_the_header_nothing_is_asked_for() -> None:
    assert retry_after_s(answer(), NOW) is None
    assert retry_after_s(answer(date=http_date(NOW)), NOW) is None


@pytest.mark.usefixtures("timezone")
@pytest.mark.parametrize(
    "text",
    [
        "Tue, 14 Nov 2023 22:15:20 GMT", "Tuesday, 14-Nov-23 22:15:20 GMT", "Tue Nov 14 22:15:20 2023",
        "Tue, 14 Nov 2023 22:15:20 -0000", "Tue, 14 Nov 2023 23:15:20 +0100", "14 Nov 2023 22:15:20 GMT",
        "  Tue, 14 Nov 2023 22:15:20 GMT  ",
    ],
)  # fmt: skip
def test_a_date_in_every_form_of_the_rfc_is_utc(text: str) -> None:
    assert retry_after_s(answer(retry_after=text), NOW) == 120


@pytest.mark.parametrize(
    ("named", "sent", "seconds"),
    [
        (NOW + 60, None, 60), (NOW - 60, None, 0), (NOW + 2 * DAY_S, None, DAY_S),
        (NOW + 60, NOW + 50, 10), (NOW - 3000, NOW - 3600, 600), (NOW + 60, NOW + 70, 0),
        (NOW + 3 * DAY_S, NOW, DAY_S),
    ],
)  # fmt: skip
def test_a_date_counts_from_the_answers_own(named: float, sent: float | None, seconds: float) -> None:
    date = None if sent is None else http_date(sent)
    assert retry_after_s(answer(retry_after=http_date(named), date=date), NOW) == seconds


def test_a_date_header_that_is_garbage_is_as_good_as_none() -> None:
    assert retry_after_s(answer(retry_after=http_date(NOW + 60), date="yesterday, or so, at noon"), NOW) == 60


def test_seconds_need_no_date() -> None:
    assert retry_after_s(answer(retry_after="60", date=http_date(NOW - DAY_S)), NOW) == 60


def test_the_first_of_two_headers_counts() -> None:
    headers = (("retry-after", "10"), ("retry-after", "99"))
    assert retry_after_s(Answered(status=429, latency_ms=1.0, headers=headers), NOW) == 10


def test_an_excerpt_is_bounded_and_a_small_answer_is_kept_whole() -> None:
    small = Answered(status=200, latency_ms=1.0, headers=(("vary", "a"),), body=b"x" * EXCERPT_BODY_MAX)
    assert small.excerpt() is small
    headers = (("date", "today"), ("x", "y" * EXCERPT_HEADERS_MAX), *[("a", "b" * 99)] * 200, ("z", "z"))
    cut = Answered(status=503, latency_ms=1.0, headers=headers, body=b"x" * 65536).excerpt()
    assert (cut.status, cut.latency_ms, cut.body) == (503, 1.0, b"x" * EXCERPT_BODY_MAX)
    assert cut.headers == (("date", "today"), *[("a", "b" * 99)] * 81, ("z", "z"))


DATE_LIKE = st.text("0123456789 ,:+-.GMTUZNovSunday\t()\x00é", max_size=70)


@given(st.text(max_size=70) | DATE_LIKE, st.text(max_size=40) | DATE_LIKE)
@example("Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 +2359")
@example("Thu, 99 Nov 2023 22:15:20 GMT", "")
@example("0000000000000000000000", "0 Jan 0 0:0:0 +99999999999999")
@example("Tue, 14 Nov 2023 22:15:20 +9999", "Tue, 14 Nov 99999999999999 22:15:20 GMT")
def test_the_wait_is_bounded_for_every_value(retry_after: str, date: str) -> None:
    wait_s = retry_after_s(answer(retry_after=retry_after, date=date), NOW)
    assert wait_s is None or 0 <= wait_s <= RETRY_AFTER_MAX_S
