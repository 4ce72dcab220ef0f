"""Bounds of what a browser may ask for, and what its cookies and its tabs are worth."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from angarium.api.api_state import ApiState
from angarium.api.queries.journeys import AskedEvent
from angarium.console import admission, cached_values, console_state, event_traces
from angarium.console.event_traces import EventTraces
from angarium.operations.receiver_list import listing
from tests.edge.api.conftest import Api
from tests.edge.console.conftest import CSRF, Browser, signed_in, visitor
from tests.support.ledgers import JournalWriter, catch_up, delivered, failed, in_file, numbered, opens
from tests.support.waiting import until, until_true

BY_TLS = {"x-forwarded-proto": "https"}
PAGES_PER_S = 0.01


async def refusal(browser: Browser, path: str) -> tuple[int, str, str]:
    """The status of an answer, how long to wait, and what the page says."""
    answer = await browser.client.get(path)
    return answer.status_code, answer.headers.get("retry-after", ""), answer.text


async def test_a_session_that_asks_too_often_has_to_wait_and_no_other(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with signed_in(api) as browser, signed_in(api) as other:
        monkeypatch.setattr(admission, "SESSION_PAGES_PER_S", PAGES_PER_S)
        assert (await browser.client.get("/console/events")).status_code == 200
        status, wait_s, page = await refusal(browser, "/console/events")
        assert status == 429
        assert int(wait_s) > 1
        assert "This browser asks for more than 0.01 pages a second" in page
        assert (await other.client.get("/console/events")).status_code == 200
        head = await browser.client.head("/console/receivers")
        assert head.status_code == 429


async def test_an_address_without_a_session_that_asks_too_often_has_to_wait(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions from there go on, and the files that pages load are for all."""
    async with signed_in(api) as browser, visitor(api) as stranger:
        style = (await browser.get("/console/")).partition('rel="stylesheet" href="')[2].partition('"')[0]
        monkeypatch.setattr(admission, "ADDRESS_PAGES_PER_S", PAGES_PER_S)
        assert (await stranger.client.get("/console/receivers")).status_code == 303
        for path in ("/console/receivers", "/console/sign-in"):
            status, wait_s, page = await refusal(stranger, path)
            assert (status, int(wait_s) > 1) == (429, True)
            assert "This address asks for more than 0.01 pages a second" in page
        assert (await stranger.client.get(style)).status_code == 200
        await browser.get("/console/")


async def test_by_tls_a_cookie_belongs_to_this_host_alone(api: Api) -> None:
    """The prefix makes a browser refuse such a cookie from a sibling of the host, or without TLS."""
    token = await api.token("acme", ["read"])
    async with visitor(api) as browser:
        browser.client.headers.update(BY_TLS)
        answer = await browser.client.get("/console/sign-in")
        form = answer.headers["set-cookie"]
        assert form.startswith("__Host-angarium_console_form=")
        given = {"cookie": form.partition(";")[0]}
        found = CSRF.search(answer.text)
        assert found is not None
        answer = await browser.client.post(
            "/console/sign-in", data={"csrf": found[1], "token": token.text}, headers=given
        )
        assert answer.status_code == 303, answer.text
        session = answer.headers["set-cookie"]
        name, _, text = session.partition(";")[0].partition("=")
        assert name == "__Host-angarium_console"
        assert "Secure" in session
        assert "Path=/;" in session
        assert "Domain" not in session
        for cookie, status in ((f"{name}={text}", 200), (f"angarium_console={text}", 303)):
            answer = await browser.client.get("/console/events", headers={"cookie": cookie})
            assert answer.status_code == status


async def test_two_tabs_that_lead_to_the_sign_in_may_both_send_their_forms(api: Api) -> None:
    token, another = await api.token("acme", ["read", "manage"]), await api.token("acme", ["read"])
    await api.receiver("acme.billing")
    async with visitor(api) as browser:
        tabs = []
        for _ in range(3):
            await browser.get("/console/sign-in")
            tabs.append(browser.csrf)
        await browser.post("/console/sign-in", {"csrf": tabs[0], "token": token.text})
        await browser.get("/console/receivers/acme/billing")
        shown = browser.csrf
        await browser.post("/console/sign-in", {"csrf": tabs[1], "token": token.text})
        await browser.get("/console/")
        assert browser.csrf == shown, "the forms of the first tab are still valid"
        await browser.post("/console/sign-in", {"csrf": tabs[2], "token": another.text})
        await browser.get("/console/")
        assert browser.csrf != shown


async def test_head_of_a_live_page_ends(api: Api) -> None:
    async with signed_in(api) as browser:
        answer = await browser.client.head("/console/live/acme")
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-type"].startswith("text/event-stream")
    assert len(api.state.tails) == 0


async def test_the_use_of_a_token_in_the_console_is_recorded_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    note = api.state.tokens.note_use

    async def noting(token: str) -> object:
        noted.append(token)
        return await note(token)

    monkeypatch.setattr(api.state.tokens, "note_use", noting)
    token = await api.token("acme", ["read"])
    async with visitor(api) as browser:
        await browser.sign_in(token.text)
        for _ in range(3):
            await browser.get("/console/events")

        async def is_recorded() -> bool:
            return token.id in await api.state.tokens.last_uses()

        await until_true(is_recorded)
    assert noted == [token.id]
    assert (await api.state.tokens.last_uses())[token.id] > datetime.now(UTC) - timedelta(minutes=1)


async def recorded_event(api: Api) -> str:
    """An event in the ledger that was delivered after a failure."""
    await api.receiver("acme.billing")
    journal, ledger = JournalWriter(api.js, api.names), in_file(api.to.settings.ledger)
    await journal.flush(opens(), failed(1), delivered(1, attempt=2))
    await catch_up(api.js, api.names, ledger)
    return numbered(1).id


async def test_the_page_of_an_event_follows_this_event_only(api: Api) -> None:
    event = await recorded_event(api)
    async with signed_in(api) as browser:
        page = await browser.get(f"/console/events/acme/{event}")
        assert f'data-live="/console/live/acme?event={event}"' in page
        request = browser.client.build_request("GET", f"/console/live/acme?event={event}")
        stream = await browser.client.send(request, stream=True)
        lines = stream.aiter_lines()
        await until(lambda: len(api.state.tails) == 1)
        journal = JournalWriter(api.js, api.names)
        await journal.flush(delivered(7), delivered(1, attempt=3), delivered(8))
        await journal.flush(delivered(9), delivered(1, attempt=4))
        found: list[str] = []
        async with asyncio.timeout(30):
            while len(found) < 2:
                line = await anext(lines)
                if line.startswith("data: "):
                    found.append(line)
        assert all(f'"event_id":"{event}"' in each for each in found)
        await stream.aclose()


async def test_the_page_of_an_event_waits_for_no_search(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger's part is there at once, and what is found in the streams as soon as it is found."""
    event, searched, go = await recorded_event(api), 0, asyncio.Event()
    search = event_traces.event_traces

    async def slow(state: ApiState, asked: AskedEvent) -> EventTraces:
        nonlocal searched
        searched += 1
        await go.wait()
        return await search(state, asked)

    monkeypatch.setattr(console_state, "event_traces", slow)
    path = f"/console/events/acme/{event}"
    async with signed_in(api) as browser:
        for _ in range(3):
            page = await browser.get(path)
            assert "attempt 1" in page
            assert "Where it waits is still being searched" in page
            assert f'data-refresh="{cached_values.READING_REFRESH_S}"' in page
        assert searched == 1, "all who look share one search"
        go.set()

        async def is_searched() -> bool:
            return "still being searched" not in await browser.get(path)

        await until_true(is_searched)
        assert "attempt 1" in browser.page


async def test_without_a_ledger_the_page_of_an_event_says_what_was_searched(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await api.client("acme", ["publish"]) as publisher:
        answer = await publisher.post(
            "/v1/tenants/acme/receivers/billing/events/order.created", json={},
            headers={"angarium-id": "order-1"},
        )  # fmt: skip
        assert answer.status_code == 202
    async with signed_in(api) as browser:
        await browser.until("/console/events/acme/order-1", "waits</span>")
        assert "Attempts are not shown: this process has no ledger" in browser.page
        assert "the newest 10,000 messages" in browser.page

        async def is_unknown() -> bool:
            answer = await browser.client.get("/console/events/acme/never")
            return answer.status_code == 404 and "never published under this id" in answer.text

        await until_true(is_unknown)


async def test_the_list_of_receivers_waits_for_no_figures(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    go = asyncio.Event()

    async def slow(*args: Any, **options: Any) -> Any:
        await go.wait()
        return await listing.overview(*args, **options)

    monkeypatch.setattr(console_state, "overview", slow)
    await api.receiver("acme.billing")
    async with signed_in(api) as browser:
        page = await browser.get("/console/receivers")
        assert "/console/receivers/acme/billing" in page
        assert "Their figures are being read" in page
        go.set()
        await browser.until("/console/receivers", "https://example.com/")
        assert "Figures are a few seconds old" in browser.page
