"""The form of a configuration: checked field by field, previewed, and stored if nothing came in between."""

import html
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from angarium.api.admission import change_rate
from streams.buckets.change_trail import changed_by
from tests.edge.api.conftest import SECRET, Api
from tests.edge.console.conftest import Browser, post_orders, signed_in
from tests.support.fleet.sink import Sink
from tests.support.waiting import until_true

RECEIVER = "/console/receivers/acme/billing"
FORM = f"{RECEIVER}/configuration"
INPUT = re.compile(r'<input [^>]*?name="([\w.]+)" value="([^"]*)"')
TEXT = re.compile(r'<textarea [^>]*?name="([\w.]+)"[^>]*>\n(.*?)</textarea>', re.DOTALL)
CHOICE = re.compile(r'<select [^>]*?name="([\w.]+)"(.*?)</select>', re.DOTALL)
STORED: dict[str, Any] = {
    "url": "https://example.com/hook?key=1", "secrets": [SECRET], "headers": {"x-team": "hunter2"},
    "rate": {"limit": 10, "per": "second"}, "order": "relaxed", "alerts": {"failing_after_s": 9},
}  # fmt: skip


def filled_in(page: str) -> dict[str, str]:
    """The fields of a page as a browser would send them."""
    found = {name: html.unescape(value) for name, value in [*INPUT.findall(page), *TEXT.findall(page)]}
    for name, options in CHOICE.findall(page):
        chosen = re.search(r"<option selected>([^<]*)", options)
        found[name] = chosen[1] if chosen else ""
    return found


@pytest.fixture
async def browser(api: Api) -> AsyncIterator[Browser]:
    """Signed in, with a receiver, at its form."""
    await api.receiver("acme.billing", **STORED)
    async with signed_in(api) as browser:
        assert f'href="{FORM}"' in await browser.get(RECEIVER)
        await browser.get(FORM)
        yield browser


async def preview(browser: Browser, changes: dict[str, str], status: int = 200) -> str:
    """Change fields of the form that the last page has, and ask what that would do."""
    fields = filled_in(browser.page) | changes | {"do": "preview"}
    browser.page = (await browser.post(FORM, fields, status)).text
    return browser.page


async def confirm(browser: Browser, status: int = 303) -> str:
    """Confirm the preview that is the last page."""
    answer = await browser.post(FORM, filled_in(browser.page) | {"do": "store"}, status)
    browser.page = answer.text
    return await browser.get(answer.headers["location"]) if status == 303 else answer.text


async def test_a_change_is_previewed_and_stored_in_the_name_of_the_token(api: Api, browser: Browser) -> None:
    page = await preview(browser, {"rate": "5/second", "timeout_s": "30", "retry.max_attempts": "7"})
    for member, old, new in (
        ("rate", "10/second", "5/second"), ("timeout_s", "15 (default)", "30"),
        ("retry.max_attempts", "0 (default)", "7"),
    ):  # fmt: skip
        assert f'<th scope="row">{member}</th><td>{old}</td><td>{new}</td>' in page
    assert "Store 3 changes" in page
    assert await api.in_bucket() == STORED
    assert "Stored as revision 2: 3 changes." in await confirm(browser)
    assert await api.in_bucket() == STORED | {
        "rate": "5/second",
        "timeout_s": 30,
        "retry": {"max_attempts": 7},
    }
    stored = await api.js.last_message(api.names.receivers, api.names.receiver("acme.billing"))
    assert stored is not None
    assert changed_by(stored).startswith("token ")


async def test_secrets_and_values_of_headers_are_masked_and_kept(api: Api, browser: Browser) -> None:
    for page in (browser.page, await preview(browser, {"concurrency": "3"})):
        assert SECRET not in page
        assert "hunter2" not in page
    await confirm(browser)
    stored = await api.in_bucket()
    assert (stored["secrets"], stored["headers"], stored["concurrency"]) == ([SECRET], STORED["headers"], 3)
    await browser.get(FORM)
    rest = filled_in(browser.page)["rest"].replace('"x-team": "…"', '"x-team": "hunter3", "x-new": "hunter4"')
    page = await preview(browser, {"rest": rest})
    assert '<th scope="row">headers.x-team</th><td>…</td><td>another value</td>' in page
    await confirm(browser)
    assert (await api.in_bucket())["headers"] == {"x-team": "hunter3", "x-new": "hunter4"}


async def test_a_secret_that_storing_made_is_on_that_answer_and_on_no_other_page(
    api: Api, browser: Browser
) -> None:
    """A form that was sent by hand may be about a receiver that does not exist yet."""
    fields = {"url": "https://example.com/", "revision": "0", "do": "store"}
    answer = await browser.post("/console/receivers/acme/new/configuration", fields, 200)
    (secret,) = (await api.in_bucket("acme.new"))["secrets"]
    assert f">{secret}</pre>" in answer.text
    assert answer.headers["cache-control"] == "no-store"
    for path in ("/console/receivers/acme/new", "/console/"):
        assert secret not in await browser.get(path)


async def test_a_form_that_is_sent_as_it_was_changes_nothing(api: Api, browser: Browser) -> None:
    page = await preview(browser, {})
    assert "Nothing would change." in page
    assert 'value="store"' not in page
    assert await api.in_bucket() == STORED


async def test_each_field_has_the_problem_that_the_api_names(api: Api, browser: Browser) -> None:
    wrong = {
        "url": "ftp://example.com/", "concurrency": "many", "timeout_s": "61", "rate": "fast",
        "retry.base_s": "9", "retry.cap_s": "1", "events": "order.>\n>.order", "filter": "amount >",
    }  # fmt: skip
    page = await preview(browser, wrong, 422)
    async with await api.client("acme", ["manage"]) as client:
        members = {
            "url": wrong["url"], "concurrency": "many", "timeout_s": 61, "rate": "fast",
            "retry": {"base_s": 9, "cap_s": 1}, "events": ["order.>", ">.order"], "filter": "amount >",
        }  # fmt: skip
        answer = await client.put("/v1/tenants/acme/receivers/billing", json=members)
    errors = {each["pointer"]: each["detail"] for each in answer.json()["errors"]}
    for pointer, path in (
        ("/url", "url"), ("/concurrency", "concurrency"), ("/timeout_s", "timeout_s"), ("/rate", "rate"),
        ("/retry/cap_s", "retry.cap_s"), ("/events/1", "events"), ("/filter", "filter"),
    ):  # fmt: skip
        shown = re.search(rf'<p class="wrong" id="e-{re.escape(path)}">([^<]*)</p>', page)
        assert shown is not None, path
        assert errors[pointer] in html.unescape(shown[1])
        assert f'id="f-{path}"' in page
    assert page.count('aria-invalid="true"') == 7
    assert filled_in(page)["concurrency"] == "many"
    assert "Store" not in page
    assert await api.in_bucket() == STORED


@pytest.mark.parametrize(
    ("rest", "why"),
    [("{", "not valid JSON"), ("[1]", "must be a JSON object"), ('{"secretz": []}', "unknown member"),
     ('{"secrets": ["…", "…"]}', "2 are given and acme.billing has 1"),
     ('{"url": "https://a.example/"}', "is in its field and in the text")],
)  # fmt: skip
async def test_a_text_that_is_no_configuration_is_shown_again(
    api: Api, browser: Browser, rest: str, why: str
) -> None:
    page = await preview(browser, {"rest": rest}, 422)
    assert why in page
    assert "rest: " not in page
    assert ">rest</a>" not in page
    assert filled_in(page)["rest"] == rest
    assert await api.in_bucket() == STORED


async def test_a_change_by_another_user_in_between_is_told_and_not_overwritten(
    api: Api, browser: Browser
) -> None:
    await preview(browser, {"timeout_s": "30"})
    theirs = STORED | {"rate": {"limit": 1, "per": "hour"}, "filter": "vip"}
    await api.receiver("acme.billing", **theirs)
    page = await confirm(browser, 409)
    assert "Nothing was stored: another user has changed the configuration" in page
    for shown in ("<td>1/hour</td><td>10/second</td>", "<td>vip</td><td>none</td>", "Start again"):
        assert shown in page
    assert await api.in_bucket() == theirs
    page = await preview(browser, {"timeout_s": "31"})
    assert "Store 3 changes" in page
    await confirm(browser)
    assert (await api.in_bucket())["rate"] == "10/second"


async def test_a_preview_of_an_old_form_says_so(api: Api, browser: Browser) -> None:
    await api.receiver("acme.billing", **STORED | {"secrets": [SECRET, "whsec_" + "A" * 32]})
    page = await preview(browser, {"timeout_s": "30"}, 422)
    assert "Nothing was stored: another user" in page
    assert "1 is given and acme.billing has 2" in page


async def test_a_receiver_that_was_removed_is_not_put_again(api: Api, browser: Browser) -> None:
    await preview(browser, {"timeout_s": "30"})
    async with await api.client("acme", ["manage"]) as client:
        assert (await client.delete("/v1/tenants/acme/receivers/billing")).status_code == 200
    await confirm(browser, 404)
    await browser.get(FORM, 404)


async def test_a_preview_can_be_edited_again(browser: Browser) -> None:
    await preview(browser, {"timeout_s": "30", "events": "order.>\nrefund.*"})
    answer = await browser.post(FORM, filled_in(browser.page) | {"do": "edit"}, 200)
    assert (filled_in(answer.text)["timeout_s"], filled_in(answer.text)["events"]) == (
        "30", "order.>\nrefund.*",
    )  # fmt: skip


async def test_another_url_is_previewed_with_the_events_that_go_there(owned: Api, sink: Sink) -> None:
    await owned.receiver("acme.billing", url=sink.url("acme.billing"), paused=True)
    async with signed_in(owned) as browser:
        await post_orders(owned, "billing", 0, 3)

        async def is_counted() -> bool:
            return '<dd id="backlog">3</dd>' in await browser.get(RECEIVER)

        await until_true(is_counted)
        await browser.get(FORM)
        page = await preview(browser, {"url": "http://127.0.0.1:9/elsewhere"})
        assert "Waiting now: 3 events, to be sent to the new URL." in page
        assert "Only nodes that may use http post to http://." in page


@pytest.mark.parametrize("tenant", ["acme", "other"])
async def test_the_form_is_hidden_from_tokens_that_may_not_manage_the_receiver(api: Api, tenant: str) -> None:
    await api.receiver("acme.billing", **STORED)
    scopes: tuple[Any, ...] = ("read",) if tenant == "acme" else ("read", "manage")
    async with signed_in(api, tenant, scopes) as browser:
        await browser.get(FORM, 404)
        await browser.get("/console/")
        await browser.post(FORM, {"revision": "1", "url": "https://evil.example/", "do": "store"}, 404)
    assert await api.in_bucket() == STORED


async def test_a_hostile_configuration_is_a_text_in_its_form(api: Api) -> None:
    hostile = {
        "url": '"><script>alert(1)</script>',
        "filter": "</textarea><b>\u202e\x1b",
        "labels": {"<b>": "<i>"},
    }
    await api.js.publish(api.names.receiver("acme.billing"), msgspec.json.encode(hostile))
    async with signed_in(api) as browser:
        page = await browser.get(FORM, 422)
        assert not re.search(r"<script>alert|<b>|<i>|\u202e|\x1b", page)
        fields = filled_in(page)
    assert fields["url"] == hostile["url"]
    assert r"\u202e\u001b" in fields["rest"]


async def test_a_form_without_a_revision_or_with_a_long_text_stores_nothing(
    api: Api, browser: Browser
) -> None:
    url = "https://example.com/" + "a" * 4000
    for revision in ("", "-1", "x", "9" * 19, "٣"):
        await browser.post(FORM, {"revision": revision, "url": url, "do": "store"}, 422)
    long = await browser.post(FORM, filled_in(browser.page) | {"rest": "<" * (90 << 10)}, 413)
    assert "Too large" in long.text
    await browser.get(FORM)
    headers = {f"x-{number}": "a" * 300 for number in range(50)}
    page = await preview(browser, {"url": url, "rest": str({"headers": headers}).replace("'", '"')})
    assert filled_in(page)["url"] == url
    await confirm(browser)
    assert await api.in_bucket() == {"url": url, "headers": headers, "secrets": [SECRET],
                                     "rate": "10/second", "order": "relaxed"}  # fmt: skip


async def test_too_many_changes_of_a_tenant_have_to_wait(
    api: Api, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.state.changes, "per_s", 0.01)
    await preview(browser, {"timeout_s": "30"})
    await confirm(browser)
    await browser.get(FORM)
    await preview(browser, {"timeout_s": "31"})
    assert "changes of receivers a second" in await confirm(browser, 429)
    assert change_rate.CHANGES_PER_S > 1
