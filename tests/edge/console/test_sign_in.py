"""Signing in and out: what a browser holds, how long it holds, and what a token may see."""

import httpx
import pytest

from angarium.console import sessions
from angarium.console.pages.signing_in import sign_in
from angarium.operations.tokens.revoke import revoke
from tests.edge.api.conftest import Api
from tests.edge.console.conftest import Browser, signed_in, visitor
from tests.support.waiting import until_true

PAGES = (
    "/console/", "/console/receivers", "/console/receivers/acme/billing",
    "/console/receivers/acme/billing/pause", "/console/events", "/console/events/acme/e1",
    "/console/dead-letters", "/console/dead-letters/acme/1", "/console/dead-letters/acme/1/body",
    "/console/receivers/acme/billing/rotate-secret", "/console/receivers/acme/billing/replay",
    "/console/receivers/acme/billing/audit", "/console/events/acme/e1/for/billing",
    "/console/events/acme/e1/for/billing/body",
    "/console/receivers/acme/billing/configuration", "/console/settings", "/console/settings/tokens/new",
    "/console/settings/tokens/aaaaaaaaaaaa/revoke", "/console/settings/links/new",
    "/console/fleet", "/console/jobs/redrive.acme.0123456789abcdef", "/console/live/acme",
)  # fmt: skip
OF_A_TENANT = tuple(each for each in PAGES if "acme" in each)
FORMS = (
    "/console/receivers/acme/billing/pause", "/console/receivers/acme/billing/rotate-secret",
    "/console/receivers/acme/billing/replay", "/console/jobs/redrive.acme.0123456789abcdef/stop",
    "/console/dead-letters/acme/redrive", "/console/dead-letters/acme/redrive-now",
    "/console/receivers/acme/billing/configuration", "/console/sign-out",
)  # fmt: skip

LASTS_S = 3.0
"""Lifetime of a token that expires during a test, after signing in."""

SOON_IDLE_S = 1.0


async def is_in(browser: Browser) -> bool:
    """True if the browser has a session."""
    return (await browser.client.get("/console/")).status_code == 200


async def test_a_browser_holds_no_token_and_no_script_reads_what_it_holds(api: Api) -> None:
    token = await api.token("acme", ["read"])
    async with visitor(api) as browser:
        page = await browser.get("/console/sign-in")
        answer = await browser.post("/console/sign-in", {"token": token.text, "next": "/console/receivers"})
        assert answer.headers["location"] == "/console/receivers"
        (cookie,) = (
            each for each in answer.headers.get_list("set-cookie") if each.startswith("angarium_console=")
        )
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Path=/console" in cookie
        assert "Secure" not in cookie
        secret = token.text.rpartition("_")[2]
        shown = page + await browser.get("/console/") + await browser.get("/console/receivers")
        assert secret not in str(answer.headers)
        assert secret not in shown
        assert token.token.hash not in shown


async def test_a_cookie_needs_tls_where_the_browser_came_by_tls(api: Api) -> None:
    async with visitor(api) as browser:
        answer = await browser.client.get("/console/sign-in", headers={"x-forwarded-proto": "https"})
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("path", ["/console/sign-in", "/console/", "/console/nothing", "/console/receivers"])
async def test_no_page_is_stored_or_framed_or_loads_from_elsewhere(api: Api, path: str) -> None:
    async with signed_in(api) as browser:
        headers = (await browser.client.get(path)).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy


@pytest.mark.parametrize("path", PAGES)
async def test_without_a_session_each_page_leads_to_the_sign_in(api: Api, path: str) -> None:
    async with visitor(api) as browser:
        answer = await browser.client.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/console/sign-in?next=%2Fconsole")
    assert answer.content == b""


@pytest.mark.parametrize("path", OF_A_TENANT)
async def test_the_pages_of_another_tenant_do_not_exist(api: Api, path: str) -> None:
    await api.receiver("acme.billing")
    await api.bury("acme.billing", 1)
    async with signed_in(api, "other") as browser:
        assert "There is nothing here that this token may see" in await browser.get(path, 404)
        for query in ("receivers", "dead-letters", "events", ""):
            await browser.get(f"/console/{query}?tenant=acme", 404)
        assert "acme.billing" not in await browser.get("/console/receivers")


async def test_a_scope_that_is_missing_hides_its_actions_and_pages(api: Api) -> None:
    await api.receiver("acme.billing")
    await api.bury("acme.billing", 1)
    async with signed_in(api, "acme", ["read"]) as browser:
        receiver = await browser.get("/console/receivers/acme/billing")
        assert "Actions" not in receiver
        assert "/pause" not in receiver
        assert 'href="/console/fleet"' not in receiver
        assert "redrive" not in await browser.get("/console/dead-letters")
        assert "Send it again" not in await browser.get("/console/dead-letters/acme/1")
        await browser.get("/console/receivers/acme/billing/pause", 404)
        for page in ("tokens/new", "tokens/aaaaaaaaaaaa/revoke", "links/new"):
            await browser.get(f"/console/settings/{page}", 404)
        await browser.get("/console/fleet", 404)
        await browser.get("/console/")
        for path in FORMS[:-1]:
            await browser.post(path, {"which": "all"}, 404)
    async with signed_in(api, "*", ["operate"]) as browser:
        await browser.get("/console/fleet")
        await browser.get("/console/receivers", 404)
    assert "paused" not in await api.in_bucket()


async def test_a_token_that_may_not_look_gets_no_session(api: Api) -> None:
    token = await api.token("acme", ["publish"])
    async with visitor(api) as browser:
        await browser.get("/console/sign-in")
        answer = await browser.post("/console/sign-in", {"token": token.text}, 403)
        assert "needs the scope read or operate" in answer.text
        assert not await is_in(browser)


@pytest.mark.parametrize("wrong", ["", "ang_x_y", "a" * 200, "ang_aaaaaaaaaaaa_" + "A" * 43, "\x00é"])
async def test_a_wrong_token_gets_no_session(api: Api, wrong: str) -> None:
    async with visitor(api) as browser:
        await browser.get("/console/sign-in")
        answer = await browser.post("/console/sign-in", {"token": wrong}, 401)
        assert "Invalid token" in answer.text
        assert not await is_in(browser)


async def test_the_id_of_a_token_is_not_enough(api: Api) -> None:
    token = await api.token("acme", ["read"])
    async with visitor(api) as browser:
        await browser.get("/console/sign-in")
        await browser.post("/console/sign-in", {"token": f"ang_{token.id}_{'A' * 43}"}, 401)
        assert not await is_in(browser)


async def test_an_expired_token_ends_its_sessions_and_gets_no_other(api: Api) -> None:
    token = await api.token("acme", ["read"], lasts_s=LASTS_S)
    async with visitor(api) as browser:
        await browser.sign_in(token.text)

        async def is_out() -> bool:
            return not await is_in(browser)

        await until_true(is_out)
        await browser.get("/console/sign-in")
        await browser.post("/console/sign-in", {"token": token.text}, 401)


@pytest.mark.parametrize("path", FORMS)
async def test_a_form_from_elsewhere_does_nothing(api: Api, path: str) -> None:
    await api.receiver("acme.billing")
    async with signed_in(api) as browser, signed_in(api) as other:
        await browser.get("/console/receivers/acme/billing")
        await other.get("/console/")
        mine, others = browser.csrf, other.csrf
        for headers, fields in (
            ({}, {}), ({}, {"csrf": ""}), ({}, {"csrf": others}), ({}, {"csrf": "é" * 3}),
            ({"sec-fetch-site": "cross-site"}, {"csrf": mine}),
            ({"sec-fetch-site": "same-site"}, {"csrf": mine}),
        ):  # fmt: skip
            answer = await browser.client.post(path, data=fields, headers=headers)
            assert answer.status_code == (409 if fields else 415), answer.text
        answer = await browser.client.post(path, json={"csrf": mine})
        assert answer.status_code == 415
        assert await is_in(browser)
    assert "paused" not in await api.in_bucket()


async def test_a_form_to_sign_in_from_elsewhere_begins_no_session(api: Api) -> None:
    """Another site cannot sign in a browser with a token of its own."""
    token = await api.token("acme", ["read"])
    async with visitor(api) as browser, visitor(api) as other:
        await other.get("/console/sign-in")
        for cookies in ({}, {"angarium_console_form": ""}, {"angarium_console_form": "x"}):
            answer = await browser.client.post(
                "/console/sign-in", data={"csrf": other.csrf, "token": token.text},
                headers={"cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())},
            )  # fmt: skip
            assert answer.status_code == 409
        assert not await is_in(browser)


async def test_an_address_that_tries_too_often_has_to_wait(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "TRIES_PER_S", 0.01)
    async with visitor(api) as browser:
        await browser.get("/console/sign-in")
        await browser.post("/console/sign-in", {"token": "wrong"}, 401)
        await browser.get("/console/sign-in")
        answer = await browser.post("/console/sign-in", {"token": "wrong"}, 429)
        assert int(answer.headers["retry-after"]) > 1
        assert not await is_in(browser)


async def test_signing_out_ends_the_session_and_not_that_of_others(api: Api) -> None:
    async with signed_in(api) as browser, signed_in(api) as other:
        await browser.get("/console/")
        held = dict(browser.client.cookies)
        await browser.post("/console/sign-out", {})
        assert "angarium_console" not in browser.client.cookies
        browser.client.cookies.update(held)
        assert not await is_in(browser)
        assert await is_in(other)


async def test_a_revoked_token_ends_its_sessions(api: Api) -> None:
    token = await api.token("acme", ["read"])
    async with visitor(api) as browser:
        await browser.sign_in(token.text)
        assert await is_in(browser)
        assert await revoke(api.to, token.id) is None

        async def is_out() -> bool:
            return not await is_in(browser)

        await until_true(is_out)


@pytest.mark.parametrize("bound", ["IDLE_MAX_S", "LIFE_MAX_S"])
async def test_a_session_ends_by_itself(api: Api, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    async with signed_in(api) as browser:
        assert await is_in(browser)
        monkeypatch.setattr(sessions, bound, 0.0)
        assert not await is_in(browser)


async def test_a_page_that_refreshes_itself_does_not_keep_the_session(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with signed_in(api) as browser:
        assert await is_in(browser)
        monkeypatch.setattr(sessions, "IDLE_MAX_S", SOON_IDLE_S)

        async def is_over() -> bool:
            answer = await browser.client.get("/console/", headers={"x-console-refresh": "1"})
            return answer.status_code == 303

        await until_true(is_over)


async def test_too_many_sessions_end_the_oldest_ones(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "TOKEN_SESSIONS_MAX", 2)
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    token = await api.token("acme", ["read"])
    async with visitor(api) as first, visitor(api) as second, visitor(api) as third:
        for browser in (first, second, third):
            await browser.sign_in(token.text)
        assert [await is_in(each) for each in (first, second, third)] == [False, True, True]
        async with signed_in(api), signed_in(api):
            assert [await is_in(each) for each in (first, second, third)] == [False, False, True]


@pytest.mark.parametrize(
    "path",
    ["https://example.com/", "//example.com", "/console@example.com", "/console/\\example.com", "/v1/nodes",
     "/console/sign-in", "/consoles", "javascript:alert(1)", "/console/\r\nset-cookie: a=b", "/console/é"],
)  # fmt: skip
async def test_the_way_back_leads_nowhere_else(api: Api, path: str) -> None:
    token = await api.token("acme", ["read"])
    async with visitor(api) as browser:
        page = await browser.client.get("/console/sign-in", params={"next": path})
        browser.page = page.text
        assert 'name="next" value="/console"' in page.text
        answer = await browser.post("/console/sign-in", {"token": token.text, "next": path})
    assert answer.headers["location"] == "/console"


async def test_the_api_takes_no_session(api: Api) -> None:
    async with signed_in(api) as browser:
        answer: httpx.Response = await browser.client.get("/v1/tenants/acme/receivers")
    assert answer.status_code == 401
