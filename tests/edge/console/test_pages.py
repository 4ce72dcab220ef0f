"""Each page, over a real node: what it shows, and what it shows when there is nothing."""

from typing import Any

import pytest
from msgspec.structs import replace

from angarium.console.pages import receiver as receiver_page
from angarium.console.pages.receivers import names_found
from angarium.node.app import open_node
from angarium.operations.receiver_list.health import ReceiverHealth
from tests.edge.api.conftest import Api
from tests.edge.console.conftest import post_orders, signed_in
from tests.support.fleet.sink import Reply, Sink
from tests.support.ledgers import JournalWriter, catch_up, delivered, failed, in_file, numbered, opens
from tests.support.waiting import until_true

BILLING = "/console/receivers/acme/billing"


async def test_an_empty_installation_says_what_to_do_next(api: Api) -> None:
    async with signed_in(api, "*", ["read", "manage", "operate"]) as browser:
        await browser.until("/console/", "There is no receiver yet.")
        assert "receiver put acme.billing --url https://example.com/hook" in browser.page
        await browser.until("/console/receivers", "There is no receiver yet.")
        assert "There is no dead letter" in await browser.get("/console/dead-letters")
        assert "There is no dead letter" in await browser.get("/console/dead-letters?tenant=acme")
        await browser.until("/console/fleet", "No node is alive")
        assert "Find an event" in await browser.get("/console/events")


async def test_a_receiver_shows_its_phase_its_limit_its_last_answer_and_its_configuration(
    owned: Api, sink: Sink
) -> None:
    sink.manners["acme.billing"] = lambda _: Reply(status=503, body=b"maintenance")
    await owned.receiver(
        "acme.billing",
        url=sink.url("acme.billing"),
        rate={"limit": 3, "per": "minute"},
        retry={"base_s": 300, "cap_s": 300},
    )
    async with signed_in(owned) as browser:
        await post_orders(owned, "billing", 1, 1)
        await browser.until(BILLING, "HTTP 503")
        page = browser.page
        assert '<dd id="backlog">1</dd>' in page
        assert '<dt>Rate in force</dt><dd class="words">3 a minute</dd>' in page
        assert "maintenance" in page
        assert "/console/events/acme/order-1" in page
        assert '"per": "minute"'.replace('"', "&#34;") in page
        assert "this process has no ledger" in page.lower()
        await browser.until("/console/receivers", "backing off")
        await browser.until("/console/", "failures of the receiver")
        assert "acme.billing" in browser.page


@pytest.mark.parametrize(
    ("members", "title", "rates"),
    [
        ({"rate": {"limit": 10, "margin": 0.9}}, "Rate in force", "9 a second"),
        ({"rate": ["10/second", "500/minute"]}, "Rates in force", "10 a second, 500 a minute"),
        ({"adaptive": {"smart": True}}, "Learnt rate", "5 a second (smart)"),
    ],
)  # fmt: skip
async def test_all_rates_of_a_receiver_are_shown(
    owned: Api, sink: Sink, members: dict[str, Any], title: str, rates: str
) -> None:
    await owned.receiver("acme.billing", url=sink.url("acme.billing"), **members)
    async with signed_in(owned) as browser:
        await post_orders(owned, "billing", 0, 1)
        await browser.until(BILLING, f'<dt>{title}</dt><dd class="words">{rates}</dd>')


async def test_a_receiver_for_which_nothing_waits_is_shown_as_empty_at_once(
    owned: Api, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot is older than the live state, and may have events that are settled by now."""
    old = ReceiverHealth(
        phase="backing_off", waiting=5, oldest_at=None, failing_since=None, disabled=None, in_per_s=17.978,
        out_per_s=0.0, empty_in_s=None, limited_by="failure",
    )  # fmt: skip

    async def health(*_: object) -> ReceiverHealth:
        return old

    monkeypatch.setattr(receiver_page, "_health", health)
    await owned.receiver("acme.billing", url=sink.url("acme.billing"), paused=True)
    async with signed_in(owned) as browser:
        await browser.until(BILLING, '<dd class="words">it is empty</dd>')
        assert "nothing: no event is held up" in browser.page
        assert "<dt>Accepted a second</dt><dd>18</dd>" in browser.page
        await browser.until(
            BILLING, '<span class="tag calm">paused</span> <span id="why">nothing waits</span>'
        )
        await post_orders(owned, "billing", 0, 1)
        await browser.until(BILLING, '<dd class="words">no end is in sight</dd>')
        assert "failures of the receiver" in browser.page
        assert '<span class="tag calm">paused</span> <span id="why"></span>' in browser.page


async def test_attempts_and_the_journey_come_from_the_ledger(api: Api) -> None:
    await api.receiver("acme.billing")
    journal, ledger = JournalWriter(api.js, api.names), in_file(api.to.settings.ledger)
    await journal.flush(opens())
    await journal.flush(failed(1, answer="not <b>now</b>"), delivered(1, attempt=2))
    await catch_up(api.js, api.names, ledger)
    event = numbered(1).id
    async with signed_in(api) as browser:
        page = await browser.get(BILLING)
        assert f"/console/events/acme/{event}" in page
        assert "not &lt;b&gt;now&lt;/b&gt;" in page
        assert page.count('<span class="tag good">delivered</span>') == 1
        only_failed = await browser.get(f"{BILLING}?failed=true")
        assert '<span class="tag good">delivered</span>' not in only_failed
        assert "not &lt;b&gt;now&lt;/b&gt;" in only_failed
        journey = await browser.get(f"/console/events/acme/{event}")
        assert "attempt 1" in journey
        assert "settled: delivered" in journey
        found = await browser.client.get(f"/console/events?id={event}")
        assert found.headers["location"] == f"/console/events/acme/{event}"
        await browser.until("/console/events/acme/never", "unknown", 404)
        assert "1 to 128 of" in await browser.get("/console/events/acme/not%20an%20id", 404)


async def test_the_fleet_shows_nodes_shards_and_findings(owned: Api) -> None:
    await owned.js.publish(owned.names.receiver("acme.typo"), b'{"url": "nowhere"}')
    async with signed_in(owned, "*", ["read", "operate"]) as browser:

        async def is_found() -> bool:
            page = await browser.get("/console/fleet")
            return "acme.typo" in page and '<span class="tag good">active</span>' in page

        await until_true(is_found)
        assert '<td class="num">2</td><td class="num">2</td>' in browser.page
        await browser.until("/console/", "1 live node.")


async def test_the_fleet_shows_a_node_that_can_connect_to_no_host(api: Api) -> None:
    async with (
        open_node(replace(api.to.settings, node="a", ttl_s=2.0)) as node,
        signed_in(api, "*", ["read", "operate"]) as browser,
    ):
        outage = node.context.outage
        assert outage is not None
        outage.begin()
        await browser.until("/console/fleet", '<span class="tag bad">no network</span>')


async def test_receivers_are_searched_and_paged(api: Api) -> None:
    for name in ("acme.billing", "acme.mail", "acmes.mail", "other.mail"):
        await api.receiver(name)
    async with signed_in(api, "*", ["read"]) as browser:
        await browser.until("/console/receivers", "4 receivers")
        assert "3 receivers" in await browser.get("/console/receivers?q=MAIL")
        page = await browser.get("/console/receivers?tenant=acme")
        assert "2 receivers" in page
        assert "acmes.mail" not in page
        assert "No receiver has such a name" in await browser.get("/console/receivers?q=nothing")


async def test_names_are_found_by_text_and_page_by_page() -> None:
    known = sorted(f"{tenant}.r{number:03}" for tenant in ("a-b", "b") for number in range(60))
    first = await names_found(known[:60], "", "")
    assert (first.total, len(first.names), first.last) == (60, 50, "a-b.r049")
    assert first.last is not None
    second = await names_found(known[:60], "", first.last)
    assert second.names == [f"a-b.r{number:03}" for number in range(50, 60)]
    assert second.last is None
    assert (await names_found(known, "B.R001", "")).names == ["a-b.r001", "b.r001"]
    assert (await names_found(known, "B.R001", "a-b.r001")).names == ["b.r001"]
    assert await names_found([], "", "") == replace(second, names=[], total=0)


async def test_a_file_is_kept_by_browsers_and_only_under_its_digest(api: Api) -> None:
    async with signed_in(api) as browser:
        page = await browser.get("/console/")
        path = page.partition('rel="stylesheet" href="')[2].partition('"')[0]
        answer = await browser.client.get(path)
        assert answer.headers["content-type"] == "text/css; charset=utf-8"
        assert "immutable" in answer.headers["cache-control"]
        await browser.get(path.replace("console.css", "console.py"), 404)
        await browser.get("/console/files/0000/console.css", 404)
        await browser.get("/console/files/0000/..%2fapp.py", 404)


async def test_the_console_takes_nothing_from_the_api(api: Api) -> None:
    async with await api.client("acme", ["read"]) as client:
        assert (await client.get("/v1/tenants/acme/receivers")).status_code == 200
        assert (await client.get("/consoles")).headers["content-type"] == "application/problem+json"
        head = await client.head("/console/sign-in")
    assert (head.status_code, head.content) == (200, b"")
