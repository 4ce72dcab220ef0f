"""The overview: the last hour by minute, alerts of a tenant, and dead letters of all tenants."""

import re
import time

import pytest

from actors.machine.state import Alert, State
from streams.journal_feed import recent_flushes
from tests.contract.observation.snapshots import put
from tests.edge.api.conftest import Api
from tests.edge.console.conftest import Browser, post_orders, signed_in
from tests.support.fleet.sink import Reply, Sink
from tests.support.waiting import until_true

SUMS = re.compile(r"<p>(\d+) accepted, (\d+) delivered, (\d+) failed")
MINUTE = re.compile(r'<tr><td><time[^>]*>[^<]*</time></td>((?:<td class="num">[^<]*</td>){4})</tr>')


async def sums(browser: Browser, accepted: int, delivered: int, failed: int) -> str:
    """The overview, once the last hour has these sums."""

    async def are_shown() -> bool:
        found = SUMS.search(await browser.get("/console/"))
        return found is not None and tuple(map(int, found.groups())) == (accepted, delivered, failed)

    await until_true(are_shown)
    return browser.page


async def busy(api: Api, sink: Sink) -> None:
    """Three events are delivered, and two wait for a receiver that failed once."""
    sink.manners["acme.mail"] = lambda _: Reply(status=503)
    await api.receiver("acme.billing", url=sink.url("acme.billing"))
    await api.receiver("acme.mail", url=sink.url("acme.mail"), retry={"base_s": 3600, "cap_s": 3600})
    await api.receiver("other.billing", url=sink.url("other.billing"))
    await post_orders(api, "billing", 0, 3)
    await post_orders(api, "mail", 0, 2)


def minutes(page: str) -> list[list[str]]:
    """The rows of the hour in numbers, the newest first."""
    return [re.findall(r">([^<]*)</td>", each) for each in MINUTE.findall(page)]


async def test_the_last_hour_comes_from_the_ledger_by_minute(watched: Api, sink: Sink) -> None:
    await busy(watched, sink)
    async with signed_in(watched, "acme", ["read"]) as browser:
        page = await sums(browser, 5, 3, 1)
        rows = minutes(page)
        assert len(rows) == 60
        assert sum(int(each[0]) for each in rows) == 5
        assert rows[0][3] == "2"
        assert rows[-1] == ["0", "0", "0", "0"]
        assert '<polyline class="line"' in page
        assert "this process has no ledger" not in page.lower()
    async with signed_in(watched, "other") as other:
        await sums(other, 0, 0, 0)
    async with signed_in(watched, "*") as operator:
        await sums(operator, 5, 3, 1)


async def test_the_last_hour_comes_from_the_journal_without_a_ledger(
    owned: Api, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The span of other measures is too short for it."""
    monkeypatch.setattr(recent_flushes, "RECENT_SPAN_S", 0.0)
    await busy(owned, sink)
    async with signed_in(owned) as browser:
        page = await sums(browser, 5, 3, 1)
        assert "This process has no ledger" in page
        await post_orders(owned, "billing", 3, 2)
        await sums(browser, 7, 5, 1)
    async with signed_in(owned, "other") as other:
        await sums(other, 0, 0, 0)


async def test_a_tenant_sees_its_alerts_and_no_others(api: Api) -> None:
    alert = Alert(kind="disabled", raised_at=time.time(), raised=True)
    for receiver in ("acme.billing", "other.mail"):
        state = State(receiver=receiver, opened=True, alerts=(alert,), disabled="gone")
        await put(api.js, api.names, state)
    async with signed_in(api, "acme", ["read"]) as browser:
        await browser.until("/console/", "1 raised alert, ")
        alerts = browser.page.partition('id="alerts"')[2].partition("</section>")[0]
        assert '<span class="tag bad">disabled</span>' in alerts
        assert "acme.billing" in alerts
        assert "other.mail" not in browser.page
    async with signed_in(api, "third") as third:
        await third.until("/console/", "No alert is raised.")


async def test_operators_see_the_dead_letters_of_all_tenants(api: Api) -> None:
    for number, receiver in enumerate(("acme.billing", "other.billing", "other.mail"), 1):
        await api.receiver(receiver)
        await api.bury(receiver, number)
    async with signed_in(api, "*", ["read", "manage"]) as browser:
        page = await browser.get("/console/dead-letters")
        assert 'href="/console/dead-letters/acme/1">1</a>' in page
        assert 'href="/console/dead-letters/other/2">2</a>' in page
        assert "Name a tenant to send its dead letters again." in page
        assert 'type="checkbox"' not in page
        page = await browser.get("/console/dead-letters?receiver=mail")
        assert "/other/3" in page
        assert "/acme/1" not in page
        assert 'type="checkbox"' in await browser.get("/console/dead-letters?tenant=other")
    async with signed_in(api) as browser:
        page = await browser.get("/console/dead-letters")
        assert "/acme/1" in page
        assert "other" not in page
