"""Links that sign in, the settings, and the form of a configuration in Chromium."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from angarium.operations.tokens.portal_links import NewPortalLink, PortalLink, create_portal_link
from angarium.operations.tokens.revoke import revoke
from angarium.settings import Settings
from tests.edge.api.conftest import Api
from tests.edge.console.chromium import NEEDS_AXE, NEEDS_CHROMIUM, Tab, tab
from tests.edge.console.conftest import opened_console, post_orders
from tests.support.fleet.sink import Sink
from tests.support.waiting import until, until_true

pytestmark = NEEDS_CHROMIUM

FORM = "/console/receivers/acme/billing/configuration"
PATHS = (
    "/console/settings", "/console/settings/tokens/new", "/console/settings/links/new", FORM,
    "/console/portal/acme",
)  # fmt: skip


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Api]:
    """A console that can make links."""
    async with opened_console(replace(settings, console_url="https://hooks.example.com")) as api:
        yield api


@pytest.fixture
async def shop(owned: Api, sink: Sink) -> Api:
    """With a receiver on a real node."""
    await owned.receiver(
        "acme.billing", url=sink.url("acme.billing"), rate="10/second", headers={"x-team": "hunter2"},
        secrets=["whsec_" + "A" * 32], events=["order.>"],
    )  # fmt: skip
    return owned


async def link(api: Api, *, manage: bool = False) -> PortalLink:
    """A link to this console, which the API knows already."""
    here = replace(api.to, settings=replace(api.to.settings, console_url=api.url))
    made = await create_portal_link(here, NewPortalLink(tenant="acme", manage=manage))
    assert isinstance(made, PortalLink)
    await until(lambda: api.state.tokens.get(made.id) is not None)
    return made


async def operator(api: Api) -> str:
    return (await api.token("*", ["read", "manage", "operate"])).text


def forget_refused_forms(browser: Tab) -> None:
    """Forget that Chromium reports an answer with a status of an error as an error of the console."""
    browser.faults = [each for each in browser.faults if "the server responded with a status of" not in each]


async def test_a_link_signs_in_after_a_click_and_leaves_the_address_bar(shop: Api) -> None:
    made = await link(shop)
    secret = made.url.partition("#")[2]
    async with tab(shop) as browser:
        told: list[str] = []
        browser.page.on("request", lambda each: told.append(f"{each.url.partition('#')[0]} {each.headers}"))
        await browser.page.goto(made.url)
        await browser.page.wait_for_selector("#paste", state="hidden")
        assert browser.page.url == f"{shop.url}/console/portal/acme"
        assert "Webhooks of acme" in await browser.page.inner_text("h1")
        assert (await browser.page.context.cookies())[0]["name"] == "angarium_console_form"
        await browser.page.keyboard.press("Enter")
        await browser.page.wait_for_selector("text=Sign out")
        assert await browser.page.inner_text(".who span") == "acme"
        assert await browser.page.evaluate("document.cookie") == ""
        assert not [each for each in told if secret in each]
        await browser.page.goto(made.url)
        await browser.page.click("main button")
        await browser.page.wait_for_selector("text=Sign out")
        assert await revoke(shop.to, made.id) is None

        async def is_out() -> bool:
            await browser.open("/console/receivers")
            return "/sign-in" in browser.page.url

        await until_true(is_out)


async def test_a_link_that_is_opened_in_a_page_of_another_site_signs_in(shop: Api) -> None:
    """Browsers send no cookie with the link, and none of ours may be needed before the click."""
    made = await link(shop)
    async with tab(shop) as browser:
        address = made.url.replace("127.0.0.1", "localhost")
        await browser.open("/console/sign-in")
        browser.url = "http://"
        await browser.page.evaluate(f"location.href = {address!r}")
        await browser.page.wait_for_selector("#paste", state="hidden")
        await browser.page.click("main button")
        await browser.page.wait_for_selector("text=Sign out")


async def test_a_link_is_pasted_where_there_is_no_javascript(shop: Api) -> None:
    made = await link(shop)
    async with tab(shop, java_script_enabled=False) as browser:
        await browser.page.goto(made.url)
        await browser.page.fill("#token", made.url)
        await browser.page.click("main button")
        await browser.page.wait_for_selector("text=Sign out")


async def test_a_second_link_in_the_same_tab_is_taken(shop: Api) -> None:
    """A change of the fragment alone loads no page."""
    made = await link(shop)
    async with tab(shop) as browser:
        await browser.page.goto(made.url.partition("#")[0])
        assert await browser.page.is_visible("#token")
        await browser.page.evaluate(f"location.hash = {made.url.partition('#')[2]!r}")
        await browser.page.wait_for_selector("#paste", state="hidden")
        await browser.page.click("main button")
        await browser.page.wait_for_selector("text=Sign out")


@NEEDS_AXE
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious_on_any_form(shop: Api, scheme: str) -> None:
    async with tab(shop, color_scheme=scheme) as browser:
        await browser.sign_in(await operator(shop))
        found = []
        for path in PATHS:
            await browser.open(path)
            found += [f"{path}: {each}" for each in await browser.violations()]
        for path, field, wrong, button in (
            (FORM, "timeout_s", "soon", "See what changes"), (FORM, "timeout_s", "30", "See what changes"),
            ("/console/settings/tokens/new", "tenant", "_", "Create the token"),
            ("/console/settings/tokens/new", "tenant", "acme", "Create the token"),
        ):  # fmt: skip
            await browser.open(path)
            await browser.page.fill(f"[name='{field}']", wrong)
            for box in await browser.page.query_selector_all("[name=scope][value=read]"):
                await box.check()
            await browser.page.click(f"text={button}")
            await browser.page.wait_for_selector("[aria-invalid], [name=do][value=store], #token")
            found += [f"{path} {wrong}: {each}" for each in await browser.violations()]
        await browser.open("/console/settings")
        await browser.page.click("text=Revoke >> nth=0")
        found += [f"revoke: {each}" for each in await browser.violations()]
        forget_refused_forms(browser)
    assert not found


@pytest.mark.parametrize("width", [360, 3840])
async def test_no_form_is_wider_than_its_window(shop: Api, width: int) -> None:
    async with tab(shop, viewport={"width": width, "height": 800}) as browser:
        await browser.sign_in(await operator(shop))
        wide = []
        for path in PATHS:
            await browser.open(path)
            if await browser.is_wider_than_the_window():
                wide.append(path)
        await browser.open(FORM)
        await browser.page.fill("[name='filter']", "a" * 300)
        await browser.page.click("text=See what changes")
        await browser.page.wait_for_selector("h1:has-text('Changes of')")
        if await browser.is_wider_than_the_window():
            wide.append("the preview")
    assert not wide


async def test_a_rate_is_lowered_in_the_form_and_in_force(shop: Api, sink: Sink) -> None:
    """The node takes the change over, and what was hidden is sent as before."""
    async with tab(shop) as browser:
        page = browser.page
        await page.goto((await link(shop, manage=True)).url)
        await page.click("main button")
        await page.click("nav >> text=Receivers")
        await page.click("text=acme.billing")
        await page.click("text=Change it…")
        await page.fill("[name='rate']", "fast")
        await page.click("text=See what changes")
        await page.wait_for_selector(".wrong >> text='fast' is not a rate")
        await page.click("[role=alert] >> text=rate")
        assert await page.evaluate("location.hash") == "#f-rate"
        await page.fill("[name='rate']", "3/minute")
        await page.select_option("[name='order']", "relaxed")
        await page.click("text=See what changes")
        assert "10/second" in await page.inner_text("tr:has-text('rate')")
        await page.click("text=Store 2 changes")
        await page.wait_for_selector("text=Stored as revision 2: 2 changes.")
        await page.wait_for_selector("#state >> text=3 a minute")
        await post_orders(shop, "billing", 0, 1)
        await until(lambda: bool(sink.arrivals["acme.billing"]))
        forget_refused_forms(browser)
    assert sink.latest["acme.billing"].headers["x-team"] == "hunter2"


async def test_a_browser_without_javascript_creates_and_revokes_a_token(shop: Api) -> None:
    async with tab(shop, java_script_enabled=False) as browser:
        page = browser.page
        await browser.sign_in(await operator(shop))
        await page.click("nav >> text=Settings")
        await page.click("text=Create a token…")
        await page.fill("[name='tenant']", "acme")
        await page.check("[name='scope'][value='read']")
        await page.fill("[name='note']", "the shop")
        await page.click("text=Create the token")
        text = await page.inner_text("#token")
        await until(lambda: shop.state.tokens.get(text.split("_")[1]) is not None)
        await page.click("text=Go to the settings")
        await page.click("tr:has-text('the shop') >> text=Revoke")
        await page.click("text=Revoke this token")
        assert "is revoked" in await page.inner_text(".notice")
        await until(lambda: shop.state.tokens.get(text.split("_")[1]) is None)
