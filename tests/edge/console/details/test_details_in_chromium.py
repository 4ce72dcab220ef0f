"""Changes and records in Chromium: by mouse and keyboard, on a narrow screen, and without JavaScript."""

import pytest

from tests.edge.api.conftest import SECRET, Api
from tests.edge.console.chromium import NEEDS_CHROMIUM, tab
from tests.edge.console.conftest import post_orders
from tests.support.fleet.sink import Sink
from tests.support.installation import publish
from tests.support.waiting import until, until_true

pytestmark = NEEDS_CHROMIUM

BILLING = "/console/receivers/acme/billing"
NARROW = {"width": 360, "height": 800}
SCRIPT = "<script>alert(1)</script><img src=https://evil.example/x onerror=alert(1)>"
EVENTS = 5


@pytest.fixture
async def busy(watched: Api, sink: Sink) -> Api:
    """With a receiver that has got its events, as the ledger knows."""
    await watched.receiver(
        "acme.billing", url=sink.url("acme.billing"), secrets=[SECRET], rate={"limit": 100}
    )
    await post_orders(watched, "billing", 0, EVENTS)
    await until(lambda: len(sink.arrivals["acme.billing"]) == EVENTS)
    async with await watched.client("acme", ["read"]) as reader:

        async def are_recorded() -> bool:
            answer = await reader.get("/v1/tenants/acme/receivers/billing/attempts")
            return answer.status_code == 200 and len(answer.json()["attempts"]) == EVENTS

        await until_true(are_recorded)
    return watched


async def manager(api: Api) -> str:
    return (await api.token("acme", ["read", "manage"])).text


async def test_a_secret_is_rotated_and_shown_once(busy: Api) -> None:
    async with tab(busy, viewport=NARROW) as browser:
        page = browser.page
        await browser.sign_in(await manager(busy))
        await browser.open(BILLING)
        await page.click("text=Rotate secret…")
        await page.select_option("#overlap", "7d")
        await page.click("text=Make a new secret >> nth=0")
        secret = await page.inner_text("#secret")
        assert not await browser.is_wider_than_the_window()
        await page.click("text=Go to the receiver")
        assert secret not in await page.content()
    stored = await busy.in_bucket()
    assert stored["secrets"] == [secret]
    assert [each["secret"] for each in stored["old_secrets"]] == [SECRET]


async def test_events_are_counted_and_sent_again_with_progress(busy: Api, sink: Sink) -> None:
    async with tab(busy) as browser:
        page = browser.page
        await browser.sign_in(await manager(busy))
        await browser.open(BILLING)
        await page.click("text=Replay…")
        await page.fill("#since", "1h")
        await page.press("#since", "Enter")
        await page.click(f"button:has-text('Send {EVENTS} events again')")
        await page.wait_for_selector("#job >> text=done")
        assert f"Sent again\n{EVENTS}" in await page.inner_text("#job")
        await page.click("#job >> text=acme.billing")
        await page.wait_for_selector("#backlog >> text=/^0$/")
    await until(lambda: len(sink.arrivals["acme.billing"]) == 2 * EVENTS)


async def test_waiting_events_are_discarded_only_by_who_writes_the_name(busy: Api, sink: Sink) -> None:
    await busy.receiver("acme.billing", url=sink.url("acme.billing"), paused=True)
    await post_orders(busy, "billing", EVENTS, 2)
    async with tab(busy) as browser:
        page = browser.page
        await browser.sign_in(await manager(busy))
        await browser.open(BILLING)
        await page.wait_for_selector("#backlog >> text=/^2$/")
        await page.click("text=Discard what waits…")
        await page.click("button:has-text('Discard 2 events')")
        assert await page.evaluate("document.activeElement.id") == "receiver"
        await page.fill("#receiver", "acme.billing")
        await page.press("#receiver", "Enter")
        await page.wait_for_selector("text=2 events discarded.")


@pytest.mark.parametrize("has_scripts", [True, False])
async def test_the_hour_and_the_audit_are_charts_with_words(busy: Api, has_scripts: bool) -> None:
    async with tab(busy, viewport=NARROW, java_script_enabled=has_scripts) as browser:
        page = browser.page
        await browser.sign_in(await manager(busy))

        async def is_drawn() -> bool:
            await browser.open("/console/")
            return await page.query_selector("#hour svg") is not None

        await until_true(is_drawn)
        assert f"{EVENTS} accepted, {EVENTS} delivered, 0 failed" in await page.inner_text("#hour")
        await page.click("text=The hour in numbers")
        assert await page.locator("#hour tbody tr").count() == 60
        await browser.open(BILLING)
        await page.click("text=Audit the rate against its limit")
        assert "No window has more attempts than its limit allows." in await page.inner_text("#verdict")
        assert await page.locator("#audit svg line.limit").count() >= 1
        assert "100 a second" in await page.inner_text("#audit")
        if has_scripts:
            assert not await browser.is_wider_than_the_window()


async def test_attempts_are_filtered_and_stay_so_while_the_page_is_live(busy: Api) -> None:
    async with tab(busy) as browser:
        page = browser.page
        await browser.sign_in(await manager(busy))
        await browser.open(BILLING)
        await page.fill("input[name=status]", "5xx")
        await page.press("input[name=status]", "Enter")
        await page.wait_for_selector("#attempts >> text=No attempt matches.")
        await page.wait_for_selector("text=This page is live.")
        await post_orders(busy, "billing", EVENTS, 1)
        await page.wait_for_selector("#live-attempts >> text=HTTP 200")
        assert "No attempt matches." in await page.inner_text("#attempts")
        await page.click("text=Show all attempts")
        await page.wait_for_selector("#attempts >> text=HTTP 200")


async def test_the_body_of_an_event_runs_nothing_and_loads_nothing(busy: Api) -> None:
    await publish(busy.js, busy.names, "acme.billing", SCRIPT.encode(), {"Angarium-Id": "evil"})
    async with tab(busy, viewport=NARROW) as browser:
        page = browser.page
        await browser.sign_in(await manager(busy))

        async def is_settled() -> bool:
            await browser.open("/console/events/acme/evil")
            return "settled: delivered" in await page.inner_text("main")

        await until_true(is_settled)
        await page.click("text=Headers and body")

        async def is_shown() -> bool:
            await page.reload()
            return await page.query_selector("pre.body") is not None

        await until_true(is_shown)
        assert await page.inner_text("pre.body") == SCRIPT
        assert await page.evaluate("document.scripts.length") == 1
        assert not await browser.is_wider_than_the_window()
        browser.faults = [each for each in browser.faults if "404 (Not Found)" not in each]
