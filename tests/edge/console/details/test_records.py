"""Records of a receiver: attempts by result, status, error and time, and the audit of its rate."""

import re

import pytest

from actors.machine import facts as f
from actors.machine.bucket import RateLimit
from actors.times_as_text import instant_text
from tests.edge.api.conftest import Api
from tests.edge.console.conftest import signed_in
from tests.support.ledgers import NOW, RECEIVER, JournalWriter, catch_up, delivered, failed, in_file, opens

BILLING = "/console/receivers/acme/billing"
AUDIT = f"{BILLING}/audit"
PERIOD = f"since={instant_text(NOW - 60)}&until={instant_text(NOW + 3600)}"
ROW = re.compile(r'<td class="num">(\d+)</td><td><a href="/console/events/')


async def record(api: Api, *facts: f.AnyFact) -> None:
    """Record these facts of the receiver, and let the ledger read them."""
    await api.receiver(RECEIVER)
    await JournalWriter(api.js, api.names).flush(opens(), *facts)
    await catch_up(api.js, api.names, in_file(api.to.settings.ledger))


def sequences(page: str) -> list[int]:
    """The numbers of the recorded attempts of a page."""
    return [int(each) for each in ROW.findall(page)]


async def test_attempts_are_filtered_by_status_error_and_time(api: Api) -> None:
    await record(
        api,
        failed(1, NOW + 1, status=503),
        failed(2, NOW + 2, status=404, rejected=True),
        failed(3, NOW + 3, status=None, error="connection refused: 100%_sure!"),
        failed(4, NOW + 4, status=None, error="<b>time-out</b>"),
        delivered(5, NOW + 5),
    )
    async with signed_in(api) as browser:
        for query, found in (
            ("", [5, 4, 3, 2, 1]), ("failed=true", [4, 3, 2, 1]), ("status=5xx", [1]), ("status=404", [2]),
            ("error=REFUSED", [3]), ("error=100%25_sure!", [3]), ("error=__", []), ("error=%25", [3]),
            ("error=time-out", [4]), ("error=refused&status=5xx", []),
            (f"since={instant_text(NOW + 2.5)}", [5, 4, 3]), ("since=1h&failed=false", [5, 4, 3, 2, 1]),
        ):  # fmt: skip
            assert sequences(await browser.get(f"{BILLING}?{query}")) == found, query
        page = await browser.get(f"{BILLING}?error=<b>time")
        assert "<b>time" not in page
        assert sequences(page) == [4]
        assert "No attempt matches." in await browser.get(f"{BILLING}?error=nothing")
        for wrong, says in (
            ("status=teapot", "is not a status"), ("since=<b>", "is not a time"),
            ("error=%00", "characters that can be printed"),
        ):  # fmt: skip
            page = await browser.get(f"{BILLING}?{wrong}")
            assert says in page
            assert "<b>" not in page


async def test_pages_of_attempts_keep_their_filters(api: Api) -> None:
    await record(
        api, *(failed(number, NOW + number, status=None, error="time-out") for number in range(1, 31))
    )
    async with signed_in(api) as browser:
        page = await browser.get(f"{BILLING}?failed=true&error=time")
        assert sequences(page) == list(range(30, 5, -1))
        following = re.search(r'rel="next" href="([^"]+)"', page)
        assert following is not None
        assert "failed=true&amp;error=time" in following[1].replace("&amp;amp;", "&amp;")
        page = await browser.get(BILLING + following[1].replace("&amp;", "&"))
        assert sequences(page) == list(range(5, 0, -1))


@pytest.mark.parametrize(("count", "verdict", "is_over"), [(4, "kept", False), (9, "exceeded", True)])
async def test_the_audit_is_a_chart_against_its_limit_and_says_the_same(
    api: Api, count: int, verdict: str, is_over: bool
) -> None:
    rate = f.RateSet(receiver=RECEIVER, limit=RateLimit(2.0, 2))
    await record(api, rate, *(delivered(number, NOW + 1 + number / 1000) for number in range(1, count + 1)))
    async with signed_in(api, "acme", ["read"]) as browser:
        page = await browser.get(f"{AUDIT}?{PERIOD}")
        assert f">{verdict}</span>" in page
        assert f"{count} attempts from " in page
        assert f": at most {count} attempts in a second, 4 allowed</title>" in page
        assert f'<td class="num">{count}</td><td class="num">4</td></tr>' in page
        assert ('<rect class="bad"' in page) == is_over
        assert '<line class="limit"' in page
        assert "2 a second, with a burst of 2" in page
        assert f'href="{AUDIT}"' in await browser.get(BILLING)


async def test_an_audit_without_a_limit_or_a_period_says_so(api: Api) -> None:
    await record(api, delivered(1))
    async with signed_in(api) as browser:
        assert "No limit was in force." in await browser.get(f"{AUDIT}?{PERIOD}")
        assert "0 attempts from" in await browser.get(AUDIT)
        assert "The end must be later" in await browser.get(f"{AUDIT}?since=1h&until=2h")
        page = await browser.get(f"{AUDIT}?since=<b>")
        assert "is not a time" in page
        assert "1w) or 2026-01-31T12:00:00Z.</p>" in page
        assert "<b>" not in page
        await browser.get("/console/receivers/acme/nobody/audit", 404)
    async with signed_in(api, "other") as other:
        await other.get(f"{AUDIT}?{PERIOD}", 404)


async def test_an_audit_without_a_ledger_says_so(api: Api) -> None:
    await api.receiver(RECEIVER)
    async with signed_in(api) as browser:
        assert "This process has no ledger" in await browser.get(AUDIT)
