"""Links that sign a tenant's people in: what they hold, whom they let in, and for how long."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from angarium.console.pages.signing_in import sign_in
from angarium.operations.failures import NotDone
from angarium.operations.tokens.listing import all_tokens
from angarium.operations.tokens.portal_links import NewPortalLink, PortalLink, create_portal_link
from angarium.operations.tokens.revoke import revoke
from angarium.settings import Settings
from streams.buckets.api_tokens import TokenStore
from tests.edge.api.conftest import Api, problem
from tests.edge.console.conftest import Browser, opened_console, signed_in, visitor
from tests.support.waiting import until, until_true

PORTAL = "/console/portal/acme"
LASTS_S = 3.0
FOR_ACME = NewPortalLink(tenant="acme")


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Api]:
    """A console that knows its address, as people reach it."""
    async with opened_console(replace(settings, console_url="https://hooks.example.com/console/")) as api:
        yield api


async def link(api: Api, new: NewPortalLink = FOR_ACME) -> PortalLink:
    """A link that the API knows already."""
    made = await create_portal_link(api.to, new)
    assert isinstance(made, PortalLink)
    await until(lambda: api.state.tokens.get(made.id) is not None)
    return made


@asynccontextmanager
async def entered(api: Api, made: PortalLink) -> AsyncIterator[Browser]:
    """A browser that has opened the link, and confirmed."""
    async with visitor(api) as browser:
        await browser.get(PORTAL)
        await browser.post(PORTAL, {"token": made.url})
        yield browser


async def is_in(browser: Browser) -> bool:
    return (await browser.client.get("/console/")).status_code == 200


async def test_a_link_signs_in_people_who_see_one_tenant_and_change_nothing(api: Api) -> None:
    await api.receiver("acme.billing")
    await api.receiver("other.billing")
    async with entered(api, await link(api)) as browser:
        await browser.until("/console/receivers", "acme.billing")
        assert "other.billing" not in browser.page
        receiver = await browser.get("/console/receivers/acme/billing")
        assert "Change it…" not in receiver
        for path in ("receivers/other/billing", "receivers/acme/billing/pause", "fleet"):
            await browser.get(f"/console/{path}", 404)
        await browser.get("/console/receivers/acme/billing/configuration", 404)


async def test_the_secret_of_a_link_is_in_its_fragment_alone(api: Api) -> None:
    made = await link(api)
    address, _, token = made.url.partition("#")
    assert address == "https://hooks.example.com/console/portal/acme"
    assert token.startswith(f"ang_{made.id}_")
    assert token not in repr(made)


async def test_opening_a_link_neither_signs_in_nor_uses_it_up(api: Api) -> None:
    """A preview of a link is a program that opens it, perhaps more than once."""
    made = await link(api)
    async with visitor(api) as program:
        for _ in range(3):
            answer = await program.client.get(PORTAL, headers={"sec-fetch-site": "cross-site"})
            assert answer.status_code == 200
            assert "angarium_console=" not in answer.headers["set-cookie"]
            assert not await is_in(program)
    for _ in range(2):
        async with entered(api, made) as browser:
            assert await is_in(browser)


async def test_a_link_is_for_the_tenant_that_its_page_names(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link must not name one tenant, and sign people in to another."""
    monkeypatch.setattr(sign_in, "TRIES_PER_S", 1000.0)
    others, operators = (
        await link(api, NewPortalLink(tenant="other")),
        await api.token("*", ["read", "operate"]),
    )
    publishers = await api.token("acme", ["publish"])
    async with visitor(api) as browser:
        for text in (others.url, operators.text, publishers.text, "", "#", "ang_x", "#" * 300, "\x00"):
            assert "Webhooks of acme" in await browser.get(PORTAL)
            answer = await browser.post(PORTAL, {"token": text}, 401)
            assert "This link is not valid" in answer.text
            assert not await is_in(browser)
        await browser.get("/console/portal/_x", 404)
        await browser.get("/console/portal/<b>", 404)


async def test_a_link_from_a_page_of_another_site_needs_a_form_of_ours(api: Api) -> None:
    made = await link(api)
    async with visitor(api) as browser:
        page = await browser.get(PORTAL)
        assert made.url not in page
        for headers, fields in (
            ({}, {}), ({}, {"csrf": "x"}), ({"sec-fetch-site": "cross-site"}, {"csrf": browser.csrf}),
        ):  # fmt: skip
            data = {"token": made.url} | fields
            assert (await browser.client.post(PORTAL, data=data, headers=headers)).status_code == 409
        assert not await is_in(browser)


async def test_wrong_links_count_as_tries(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "TRIES_PER_S", 0.01)
    async with visitor(api) as browser:
        for status in (401, 429):
            await browser.get(PORTAL)
            await browser.post(PORTAL, {"token": "wrong"}, status)


async def test_the_session_of_a_link_ends_with_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("angarium.operations.tokens.portal_links.LINK_LASTS_MIN_S", LASTS_S)
    made = await link(api, NewPortalLink(tenant="acme", lasts_s=LASTS_S))
    async with entered(api, made) as browser:

        async def is_out() -> bool:
            return not await is_in(browser)

        await until_true(is_out)
        await browser.get(PORTAL)
        await browser.post(PORTAL, {"token": made.url}, 401)


async def test_a_link_is_listed_and_revoked_with_its_sessions(api: Api) -> None:
    made = await link(api, NewPortalLink(tenant="acme", manage=True, note="Ada of acme"))
    tokens = await all_tokens(api.to)
    assert not isinstance(tokens, NotDone)
    (listed,) = (each for each in tokens if each.id == made.id)
    assert (listed.note, listed.scopes) == ("portal link: Ada of acme", ("read", "manage"))
    assert listed.expires_at is not None
    assert (listed.expires_at - listed.created_at).total_seconds() == 3600
    assert listed.used_at is None
    async with entered(api, made) as browser:
        await browser.get("/console/")

        async def is_used() -> bool:
            return made.id in await TokenStore(api.js, api.names).last_uses()

        await until_true(is_used)
        assert await revoke(api.to, made.id) is None

        async def is_out() -> bool:
            return not await is_in(browser)

        await until_true(is_out)


@pytest.mark.parametrize(
    "new",
    [NewPortalLink(tenant="*"), NewPortalLink(tenant="a.b"), NewPortalLink(tenant="acme", lasts_s=59),
     NewPortalLink(tenant="acme", lasts_s=86_401), NewPortalLink(tenant="acme", note="x" * 200),
     NewPortalLink(tenant="acme", note="a\nb")],
)  # fmt: skip
async def test_a_link_that_would_be_too_much_is_refused(api: Api, new: NewPortalLink) -> None:
    done = await create_portal_link(api.to, new)
    assert isinstance(done, NotDone)
    assert done.kind == "invalid"


async def test_a_link_does_not_take_its_address_from_a_request(api: Api) -> None:
    """A request that could name the host of a link would get the token of those who open it."""
    path = "/v1/tenants/acme/portal-links"
    async with await api.client("*", ["operate"]) as operator:
        answer = await operator.post(
            path, headers={"host": "evil.example", "x-forwarded-host": "evil.example"}
        )
        assert answer.status_code == 201, answer.text
        assert answer.headers["cache-control"] == "no-store"
        assert answer.json()["url"].startswith("https://hooks.example.com/console/portal/acme#ang_")
        for body in ({"lasts_s": 5}, {"manage": 1}, {"scopes": ["operate"]}):
            problem(await operator.post(path, json=body), 422, "invalid")
        managing = await operator.post(path, json={"manage": True, "lasts_s": 60})
        assert managing.json()["scopes"] == ["read", "manage"]
    async with await api.client("acme", ["read", "manage"]) as manager:
        problem(await manager.post(path), 404, "not-found")


async def test_without_an_address_no_link_is_made(settings: Settings) -> None:
    async with opened_console(settings) as api, await api.client("*", ["operate"]) as operator:
        told = problem(await operator.post("/v1/tenants/acme/portal-links"), 409, "refused")
        assert "console_url, is not set" in told


async def test_a_link_takes_the_place_of_another_sign_in(api: Api) -> None:
    made = await link(api)
    async with signed_in(api, "other") as browser:
        held = dict(browser.client.cookies)
        await browser.get(PORTAL)
        await browser.post(PORTAL, {"token": made.url})
        assert ">acme</span>" in await browser.get("/console/")
        async with visitor(api) as old:
            old.client.cookies.update(held)
            assert not await is_in(old)
