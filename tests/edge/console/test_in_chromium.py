"""The console in Chromium: looks, keyboard, live updates, and what it is for."""

import time

import pytest

from actors.machine.state import Alert, State
from tests.contract.observation.snapshots import put
from tests.edge.api.conftest import Api
from tests.edge.console.chromium import NEEDS_AXE, NEEDS_CHROMIUM, Tab, tab
from tests.edge.console.conftest import post_orders
from tests.support.fleet.sink import Manner, Reply, Sink
from tests.support.waiting import until_true

pytestmark = NEEDS_CHROMIUM

LATE_EVENTS = 12
LIVE_WITHIN_MS = 1000
SCRIPT = "<script>alert(1)</script><img src=https://evil.example/x onerror=alert(1)>"
PATHS = (
    "/console/", "/console/?tenant=acme", "/console/receivers/acme/billing/rotate-secret",
    "/console/receivers/acme/billing/replay?since=1h", "/console/receivers/acme/billing/audit",
    "/console/events/acme/order-1/for/billing", "/console/dead-letters", "/console/receivers",
    "/console/receivers/acme/billing",
    "/console/receivers/acme/billing/forget", "/console/events", "/console/events/acme/order-1",
    "/console/dead-letters?tenant=acme", "/console/dead-letters/acme/1", "/console/fleet", "/console/nothing",
)  # fmt: skip


def failing(body: bytes) -> Manner:
    return lambda _: Reply(status=503, body=body, headers=(("content-type", "text/html"),))


@pytest.fixture
async def busy(watched: Api, sink: Sink) -> Api:
    """With a receiver that fails, a hostile dead letter, and events that wait."""
    sink.manners["acme.billing"] = failing(SCRIPT.encode())
    await watched.receiver("acme.billing", url=sink.url("acme.billing"), retry={"base_s": 3600})
    await watched.receiver("acme.mail", url=sink.url("acme.mail"))
    await watched.bury("acme.mail", 1, "rejected", SCRIPT.encode())
    await post_orders(watched, "billing", 0, LATE_EVENTS)
    async with await watched.client("acme", ["read"]) as reader:

        async def is_recorded() -> bool:
            answer = await reader.get("/v1/tenants/acme/receivers/billing/attempts")
            return answer.status_code == 200 and bool(answer.json()["attempts"])

        await until_true(is_recorded)
    return watched


async def operator(api: Api) -> str:
    return (await api.token("*", ["read", "manage", "operate"])).text


@NEEDS_AXE
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious_on_any_page(busy: Api, scheme: str) -> None:
    async with tab(busy, color_scheme=scheme) as browser:
        await browser.open("/console/sign-in")
        found = [f"the sign-in: {each}" for each in await browser.violations()]
        await browser.sign_in(await operator(busy))
        for path in PATHS:
            await browser.open(path)
            found += [f"{path}: {each}" for each in await browser.violations()]
        forget_missing(browser)
    assert not found


def forget_missing(browser: Tab) -> None:
    """Forget that Chromium reports pages of 404 as errors of the console."""
    browser.faults = [each for each in browser.faults if "404 (Not Found)" not in each]


@pytest.mark.parametrize("width", [360, 3840])
async def test_no_page_is_wider_than_its_window(busy: Api, width: int) -> None:
    alert = Alert(kind="disabled", raised_at=time.time(), raised=True)
    name = "a-receiver-with-a-long-name"
    state = State(receiver=f"other.{name}", opened=True, alerts=(alert,), disabled="gone")
    await put(busy.js, busy.names, state)
    async with tab(busy, viewport={"width": width, "height": 800}) as browser:
        await browser.sign_in(await operator(busy))
        await browser.open("/console/")
        await browser.page.wait_for_selector(f"#findings table >> text={name}")
        await browser.page.wait_for_selector("#worst table")
        wide = []
        for path in PATHS:
            await browser.open(path)
            if await browser.is_wider_than_the_window():
                wide.append(path)
        forget_missing(browser)
    assert not wide


async def test_an_attempt_is_shown_within_a_second_of_its_record(watched: Api, sink: Sink) -> None:
    """The best of ten counts, since other tests use the same processors."""
    await watched.receiver("acme.billing", url=sink.url("acme.billing"))
    async with tab(watched) as browser:
        await browser.sign_in((await watched.token("acme", ["read"])).text)
        await browser.open("/console/receivers/acme/billing")
        await browser.page.wait_for_selector("text=This page is live.")
        await browser.page.evaluate(
            """() => {
                window.late = [];
                new MutationObserver((changes) => {
                    for (const each of document.querySelectorAll("#live-attempts time:not([data-seen])")) {
                        each.dataset.seen = "1";
                        window.late.push(Date.now() - new Date(each.dateTime).getTime());
                    }
                }).observe(document.getElementById("live-attempts"), { childList: true, subtree: true });
            }"""
        )
        for number in range(10):
            await post_orders(watched, "billing", number, 1)
            await browser.until(f"window.late.length > {number}")
        late = await browser.page.evaluate("window.late")
        await browser.page.wait_for_selector("#backlog >> text=/^0$/")
        await browser.until("document.querySelector('#answer').innerText.includes('HTTP 200')")
    assert min(late) < LIVE_WITHIN_MS, late


async def test_a_hostile_answer_is_a_text_in_a_live_page_too(owned: Api, sink: Sink) -> None:
    sink.manners["acme.billing"] = failing(SCRIPT.encode())
    await owned.receiver("acme.billing", url=sink.url("acme.billing"))
    async with tab(owned) as browser:
        await browser.sign_in((await owned.token("acme", ["read"])).text)
        await browser.open("/console/receivers/acme/billing")
        await browser.page.wait_for_selector("text=This page is live.")
        await post_orders(owned, "billing", 0, 1)
        await browser.page.wait_for_selector("#live-attempts >> text=HTTP 503")
        await browser.page.wait_for_selector("#answer pre")
        assert await browser.page.inner_text("#answer pre") == SCRIPT


async def test_hostile_bodies_run_nothing_and_load_nothing(busy: Api) -> None:
    async with tab(busy) as browser:
        await browser.sign_in(await operator(busy))
        await browser.open("/console/dead-letters/acme/1")
        assert await browser.page.inner_text("pre.body") == SCRIPT
        await browser.open("/console/receivers/acme/billing")
        assert await browser.page.inner_text("#answer pre") == SCRIPT
        assert await browser.page.evaluate("document.scripts.length") == 1
        assert await browser.page.evaluate("document.cookie") == ""


async def test_a_browser_without_javascript_reads_and_acts(busy: Api) -> None:
    async with tab(busy, java_script_enabled=False) as browser:
        await browser.sign_in((await busy.token("acme", ["read", "manage"])).text)
        await browser.page.click("nav >> text=Receivers")
        await browser.page.click("text=acme.billing")
        assert "HTTP 503" in await browser.page.inner_text("#answer")
        assert "UTC" in await browser.page.inner_text("#answer")
        await browser.page.click("text=Pause…")
        await browser.page.click("button:has-text('Pause it')")
        assert "It is paused." in await browser.page.inner_text(".notice")
        await browser.page.click("text=Sign out")
        await browser.page.wait_for_selector("#token")


async def test_a_page_works_by_keyboard(busy: Api) -> None:
    async with tab(busy) as browser:
        await browser.sign_in(await operator(busy))
        await browser.open("/console/receivers/acme/billing")
        await browser.page.keyboard.press("Tab")
        assert await browser.page.evaluate("document.activeElement.textContent") == "Skip to the content"
        await browser.page.keyboard.press("Enter")
        for _ in range(30):
            await browser.page.keyboard.press("Tab")
            if await browser.page.evaluate("document.activeElement.textContent") == "Discard what waits…":
                break
        await browser.page.keyboard.press("Enter")
        await browser.page.wait_for_selector(f"button:has-text('Discard {LATE_EVENTS} events')")


async def test_a_page_says_that_its_session_is_over(busy: Api) -> None:
    token = await busy.token("acme", ["read"])
    async with tab(busy) as browser:
        await browser.sign_in(token.text)
        await browser.open("/console/receivers/acme/billing")
        await browser.page.wait_for_selector("text=This page is live.")
        await browser.page.context.clear_cookies()
        await browser.page.wait_for_selector("text=The session is over")


async def test_a_newcomer_finds_why_events_are_late_and_cures_it(busy: Api, sink: Sink) -> None:
    """The walk of docs/console.md."""
    async with tab(busy) as browser:
        page = browser.page
        await browser.sign_in((await busy.token("acme", ["read", "manage"])).text)
        await page.wait_for_selector("#worst >> text=failures of the receiver")
        await page.click("#worst >> text=acme.billing")
        assert "backing off" in await page.inner_text("#state")
        assert "HTTP 503" in await page.inner_text("#answer")
        assert await page.inner_text("#backlog") == str(LATE_EVENTS)
        sink.manners.pop("acme.billing")
        await page.click("text=Ping…")
        await page.click("text=Send the ping")
        await page.wait_for_selector("text=The receiver answered 200")
        await page.click("text=Resume…")
        await page.click(f"button:has-text('Resume, and send {LATE_EVENTS} events')")
        await page.wait_for_selector("text=It is resumed.")
        await page.wait_for_selector("#backlog >> text=/^0$/")
    arrived = [each.sequence for each in sink.arrivals["acme.billing"] if each.sequence]
    assert arrived[-LATE_EVENTS:] == list(range(1, LATE_EVENTS + 1))
