"""The settings: tokens for operators, quotas for everybody, and nothing of another tenant."""

import re
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from actors.configuration.policy import Rate
from actors.tenant_settings import TenantSettings
from angarium.console.pages.settings import view
from angarium.settings import Settings
from streams.buckets.api_tokens import TokenStore
from tests.edge.api.conftest import Api
from tests.edge.console.conftest import Browser, opened_console, signed_in, visitor
from tests.support.waiting import until, until_true

SETTINGS = "/console/settings"
TOKENS = f"{SETTINGS}/tokens"
TOKEN = re.compile(r"ang_([a-z0-9]{12})_[A-Za-z0-9_-]{43}")
QUOTAS = {
    "acme": TenantSettings(
        weight=4, rate=Rate(limit=500), backlog_max_bytes=2 << 30, dead_letters_max_bytes=500 << 20,
        attempts_max=600,
    ),
    "secretive": TenantSettings(weight=7),
    "*": TenantSettings(dead_letters_max_bytes=1 << 20),
}  # fmt: skip


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Api]:
    """A console whose settings have quotas of tenants."""
    async with opened_console(replace(settings, tenants=QUOTAS)) as api:
        yield api


@pytest.fixture
async def operator(api: Api) -> AsyncIterator[Browser]:
    async with signed_in(api, "*", ["read", "operate"]) as browser:
        yield browser


async def create(browser: Browser, status: int = 200, **fields: object) -> str:
    """Send the form for a new token; returns the page that answers."""
    await browser.get(f"{TOKENS}/new")
    usual = {"tenant": "acme", "scope": ["read"], "lasts": "12h", "rate": "", "note": ""}
    return (await browser.post(TOKENS, usual | fields, status)).text


async def test_a_token_is_created_shown_once_listed_and_revoked(api: Api, operator: Browser) -> None:
    page = await create(operator, scope=["publish", "read"], rate="12.5", note="the <b>shop</b>")
    found = TOKEN.search(page)
    assert found is not None
    text, token_id = found[0], found[1]
    await until(lambda: api.state.tokens.get(token_id) is not None)
    token = api.state.tokens.get(token_id)
    assert token is not None
    assert (token.tenant, token.scopes, token.rate) == ("acme", ("publish", "read"), 12.5)
    assert token.created_by.startswith("token ")
    assert token.expires_at is not None
    assert (token.expires_at - token.created_at).total_seconds() == 12 * 3600
    listed = await operator.get(SETTINGS)
    assert text.rpartition("_")[2] not in listed
    assert token.hash not in listed
    assert "the &lt;b&gt;shop&lt;/b&gt;" in listed
    async with visitor(api) as holder:
        await holder.sign_in(text)
        await holder.get("/console/")
        preview = await operator.get(f"{TOKENS}/{token_id}/revoke")
        assert "1 of them here" in preview
        assert "you will be signed out" not in preview
        answer = await operator.post(f"{TOKENS}/{token_id}/revoke", {})
        after = await operator.get(answer.headers["location"])
        assert "is revoked" in after
        assert f"<code>{token_id}</code>" not in after

        async def is_out() -> bool:
            return (await holder.client.get("/console/")).status_code == 303

        await until_true(is_out)
    await operator.get(f"{TOKENS}/{token_id}/revoke", 404)


async def test_each_field_of_a_token_has_its_own_problem(api: Api, operator: Browser) -> None:
    before = len(await TokenStore(api.js, api.names).all())
    page = await create(operator, 422, tenant="a b", scope=[], lasts="soon", rate="fast", note="x" * 201)
    for path, why in (
        ("tenant", "a letter, then up to 63 of"), ("scopes", "a token needs a scope"),
        ("lasts_s", "is not an age; write it as 45s"), ("rate", "is not a number of events a second"),
        ("note", "must be one line of at most 200 characters"),
    ):  # fmt: skip
        assert re.search(rf'<p class="wrong" id="e-{path}">[^<]*{re.escape(why)}', page), path
        assert f'<a href="#f-{path}">' in page
    assert 'value="soon"' in page
    for wrong, why in (
        ({"scope": ["operate"]}, "give it to the tenant *"), ({"rate": "nan"}, "must be above 0"),
        ({"rate": "-1"}, "must be above 0"), ({"lasts": "0s"}, "must be above 0"),
        ({"tenant": ""}, "a letter, then up to 63"), ({"scope": ["root"]}, "a token needs a scope"),
        ({"note": "a\x1bb"}, "must be one line"), ({"lasts": "9" * 40 + "d"}, "is not an age"),
    ):  # fmt: skip
        assert why in await create(operator, 422, **wrong)
    assert len(await TokenStore(api.js, api.names).all()) == before
    assert "until it is revoked" in await create(operator, lasts="")


async def test_the_token_of_the_session_is_revoked_with_a_warning(operator: Browser) -> None:
    page = await operator.get(SETTINGS)
    own = re.search(r"<code>([a-z0-9]{12})</code> <span class=\"tag calm\">yours", page)
    assert own is not None
    assert "you will be signed out" in await operator.get(f"{TOKENS}/{own[1]}/revoke")
    await operator.post(f"{TOKENS}/{own[1]}/revoke", {})

    async def is_out() -> bool:
        return (await operator.client.get(SETTINGS)).status_code == 303

    await until_true(is_out)


@pytest.mark.parametrize("scopes", [["read"], ["read", "manage"]])
async def test_tenants_see_their_quotas_and_no_token(api: Api, scopes: list[str]) -> None:
    token = await api.token("acme", ["read"], note="hidden note")
    async with signed_in(api, "acme", scopes) as browser:  # type: ignore[arg-type]
        page = await browser.get(SETTINGS)
        for shown in (">acme</td>", "500 per second", "2 GiB", "500 MiB", ">600<"):
            assert shown in page
        for unseen in ("hidden note", token.id, "secretive", "all others", "angarium.toml", "tokens/new"):
            assert unseen not in page
        await browser.get(f"{SETTINGS}?tenant=secretive", 404)
        await browser.get(f"{TOKENS}/new", 404)
        await browser.get(f"{SETTINGS}/links/new", 404)
        await browser.get(f"{TOKENS}/{token.id}/revoke", 404)
        await browser.get(SETTINGS)
        await browser.post(TOKENS, {"tenant": "acme", "scope": ["read"]}, 404)
        await browser.post(f"{TOKENS}/{token.id}/revoke", {}, 404)
        await browser.post(f"{SETTINGS}/links", {"tenant": "acme", "lasts": "1h"}, 404)
    assert api.state.tokens.get(token.id) is not None
    async with signed_in(api, "other", ["read"]) as browser:
        page = await browser.get(SETTINGS)
        assert ">other</td>" in page
        assert "1 MiB" in page


async def test_operators_see_the_quotas_of_all_tenants_or_of_one(operator: Browser) -> None:
    page = await operator.get(SETTINGS)
    assert [name for name in ("acme", "secretive", "all others") if f"<td>{name}</td>" in page] == [
        "acme", "secretive", "all others",
    ]  # fmt: skip
    page = await operator.get(f"{SETTINGS}?tenant=unknown")
    assert "<td>unknown</td>" in page
    assert "There is no token for unknown" in page
    await operator.get(f"{SETTINGS}?tenant=%3Cb%3E", 404)


async def test_tokens_are_shown_page_by_page_and_by_tenant(
    api: Api, operator: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "PAGE_TOKENS", 2)
    made = [(await api.token("acme", ["read"])).id for _ in range(3)]
    first = await operator.get(f"{SETTINGS}?tenant=acme")
    assert "3 tokens" in first
    assert [each for each in made if f"<code>{each}</code>" in first] == made[1:]
    second = await operator.get(f"{SETTINGS}?tenant=acme&after={made[1]}")
    assert [each for each in made if f"<code>{each}</code>" in second] == made[:1]
    assert "Older tokens" not in second


@pytest.mark.parametrize("path", [TOKENS, f"{TOKENS}/aaaaaaaaaaaa/revoke"])
async def test_a_form_of_the_settings_needs_the_text_of_its_session(
    api: Api, operator: Browser, path: str
) -> None:
    token = await api.token("acme", ["read"])
    path = path.replace("aaaaaaaaaaaa", token.id)
    await operator.get(SETTINGS)
    for fields in ({"csrf": ""}, {"csrf": "x"}):
        await operator.post(path, {"tenant": "acme", "scope": ["read"]} | fields, 409)
    assert api.state.tokens.get(token.id) is not None


async def test_a_revocation_of_a_token_that_does_not_exist_is_not_found(operator: Browser) -> None:
    for token_id in ("aaaaaaaaaaaa", "a.b", "<b>"):
        answer = await operator.client.get(f"{TOKENS}/{token_id}/revoke")
        assert answer.status_code == 404
        assert "<b>" not in answer.text
    await operator.get(SETTINGS)
    await operator.post(f"{TOKENS}/aaaaaaaaaaaa/revoke", {}, 404)


async def test_a_link_is_made_and_shown_once(settings: Settings) -> None:
    console_url = "https://hooks.example.com"
    async with (
        opened_console(replace(settings, console_url=console_url)) as api,
        signed_in(api, "*", ["operate"]) as browser,
    ):
        await browser.get(f"{SETTINGS}/links/new")
        asked = {"tenant": "acme", "manage": "yes", "lasts": "30m", "note": "<b>Ada</b>"}
        page = (await browser.post(f"{SETTINGS}/links", asked, 200)).text
        assert "can sign in to acme: send it only over a channel that you trust." in page
        assert "To end it and its sessions earlier, <a" in page
        found = re.search(rf"{console_url}/console/portal/acme#({TOKEN.pattern})", page)
        assert found is not None
        await until(lambda: api.state.tokens.get(found[2]) is not None)
        token = api.state.tokens.get(found[2])
        assert token is not None
        assert (token.scopes, token.created_by.startswith("token ")) == (("read", "manage"), True)
        assert token.expires_at is not None
        assert (token.expires_at - token.created_at).total_seconds() == 1800
        listed = await browser.get(SETTINGS)
        assert "portal link: &lt;b&gt;Ada&lt;/b&gt;" in listed
        assert found[1] not in listed
        stored = len(await TokenStore(api.js, api.names).all())
        for wrong, path, why in (
            ({"tenant": "*"}, "tenant", "is no tenant"), ({"tenant": ""}, "tenant", "is no tenant"),
            ({"lasts": "2d"}, "lasts_s", "1 minute to 24 hours"), ({"lasts": ""}, "lasts_s", "is not an age"),
            ({"note": "a\x1bb"}, "note", "must be one line"), ({"note": "x" * 200}, "note", "at most 187"),
        ):  # fmt: skip
            page = (await browser.post(f"{SETTINGS}/links", asked | wrong, 422)).text
            assert re.search(rf'<p class="wrong" id="e-{path}">[^<]*{re.escape(why)}', page)
        assert len(await TokenStore(api.js, api.names).all()) == stored


async def test_the_form_of_a_link_says_that_the_console_has_no_address(operator: Browser) -> None:
    assert "The setting <code>console_url</code>" in await operator.get(f"{SETTINGS}/links/new")
    await operator.get(SETTINGS)
    await operator.post(f"{SETTINGS}/links", {"tenant": "acme", "lasts": "1h"}, 409)
