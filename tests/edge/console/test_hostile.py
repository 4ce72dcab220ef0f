"""Hostile bodies, headers, names and answers: shown, bounded, and never obeyed."""

import asyncio
import re

import httpx
import msgspec
import pytest

from actors.machine.facts import Burial
from streams.dead_letters.bury import DeadLetterWriter
from streams.nats.wire_names import EVENT_ID
from tests.edge.api.conftest import MAX_BODY, Api
from tests.edge.console.conftest import signed_in
from tests.support.fleet.sink import Reply, Sink
from tests.support.installation import publish
from tests.support.waiting import until_true

SCRIPT = b"<script>alert(1)</script><img src=x onerror=alert(1)>'\"{{ 7 * 7 }}{% raw %}"
TERMINAL = "\x1b[2J\x1b]0;owned\x07\u202egnp.exe\u2066\u200b"
INVALID = b"caf\xe9 \xff\xfe\xc3( \xf0\x9f"
PAGE_MAX = 200 << 10
"""Bytes of a page with the largest body."""


async def letter(api: Api, body: bytes, **headers: str) -> int:
    """Bury an event with that body; returns the number of the dead letter."""
    given = {EVENT_ID: "e1"} | headers
    position = await publish(api.js, api.names, "acme.billing", body, given)
    burial = Burial(position=position, reason="rejected", sequence=1, attempts=3, status=400)
    await DeadLetterWriter(api.js, api.names).bury("acme.billing", [burial])
    return (await api.stored(api.names.dead_letters))[-1].position


async def test_markup_in_a_body_is_a_text(api: Api) -> None:
    number = await letter(api, SCRIPT)
    async with signed_in(api) as browser:
        page = await browser.get(f"/console/dead-letters/acme/{number}")
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "{{ 7 * 7 }}{% raw %}" in page


async def test_characters_that_terminals_and_bidi_obey_are_escapes(api: Api) -> None:
    number = await letter(api, TERMINAL.encode())
    async with signed_in(api) as browser:
        page = await browser.get(f"/console/dead-letters/acme/{number}")
    assert not [each for each in TERMINAL if each in page and not each.isprintable()]
    assert r"\x1b[2J\x1b]0;owned\x07\u202egnp.exe\u2066\u200b" in page


async def test_a_body_that_is_not_utf_8_is_shown_and_saved_as_it_is(api: Api) -> None:
    number = await letter(api, INVALID)
    async with signed_in(api) as browser:
        page = await browser.get(f"/console/dead-letters/acme/{number}")
        saved = await browser.client.get(f"/console/dead-letters/acme/{number}/body")
    assert r"caf\xe9 \xff\xfe\xc3( \xf0\x9f" in page
    assert "It is not UTF-8" in page
    assert saved.content == INVALID
    assert saved.headers["content-type"] == "application/octet-stream"
    assert saved.headers["content-disposition"].startswith("attachment")
    assert saved.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("body", [b"A" * MAX_BODY, b"\n" * MAX_BODY, b"\x01" * MAX_BODY, b"<" * MAX_BODY])
async def test_a_body_of_one_endless_line_makes_no_endless_page(api: Api, body: bytes) -> None:
    number = await letter(api, body)
    async with signed_in(api) as browser:
        page = await browser.get(f"/console/dead-letters/acme/{number}")
        saved = await browser.client.get(f"/console/dead-letters/acme/{number}/body")
    assert len(page) < PAGE_MAX
    assert saved.content == body


async def test_headers_are_texts(api: Api) -> None:
    number = await letter(api, b"{}", **{"content-type": "<script>alert(2)</script>", "x-long": "B" * 9000})
    async with signed_in(api) as browser:
        page = await browser.get(f"/console/dead-letters/acme/{number}")
        listed = await browser.get("/console/dead-letters")
    assert "<script>alert" not in page + listed
    assert "B" * 3000 not in page


async def test_the_answer_of_a_receiver_is_a_text(owned: Api, sink: Sink) -> None:
    sink.manners["acme.billing"] = lambda _: Reply(
        status=500, headers=(("x-evil", "<script>alert(3)</script>"),), body=SCRIPT + INVALID
    )
    await owned.receiver("acme.billing", url=sink.url("acme.billing"))
    async with await owned.client("acme", ["publish"]) as publisher, signed_in(owned) as browser:
        await publisher.post("/v1/tenants/acme/receivers/billing/events/order.created", json={})

        async def is_answered() -> bool:
            return "HTTP 500" in await browser.get("/console/receivers/acme/billing")

        await until_true(is_answered)
        page = browser.page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(3)&lt;/script&gt;" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


async def test_no_secret_of_a_configuration_is_in_a_page(api: Api) -> None:
    raw = {
        "url": "https://user:hunter2@example.com/hook?key=hunter3", "secrets": ["whsec_" + "A" * 32],
        "headers": {"authorization": "Bearer hunter4"}, "secretz": ["hunter5"],
    }  # fmt: skip
    await api.js.publish(api.names.receiver("acme.billing"), msgspec.json.encode(raw))
    async with signed_in(api) as browser:
        shown = await browser.get("/console/receivers/acme/billing") + await browser.get("/console/receivers")
    assert "hunter" not in shown
    assert "whsec_" not in shown


@pytest.mark.parametrize(
    "query",
    ["receivers?q=<script>alert(1)</script>", "receivers?after=<b>", "receivers?tenant=<b>", "events?id=<b>",
     "dead-letters?receiver=<b>", "dead-letters?reason=<b>", "receivers/acme/<b>", "events/acme/<b>", "<b>",
     "receivers/acme/billing?cursor=<b>", "dead-letters/acme/<b>", "live/acme?receiver=<b>"],
)  # fmt: skip
async def test_nothing_of_an_address_is_markup(api: Api, query: str) -> None:
    await api.receiver("acme.billing")
    async with signed_in(api, "*") as browser:
        answer = await browser.client.get(f"/console/{query}")
    assert answer.status_code < 500, answer.text
    assert "<b>" not in answer.text
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"])
async def test_other_methods_are_refused_and_break_nothing(api: Api, method: str) -> None:
    async with signed_in(api) as browser:
        answer = await browser.client.request(method, "/console/receivers")
    assert answer.status_code == 405


async def test_a_form_may_not_be_large_or_of_another_kind(api: Api) -> None:
    async with signed_in(api) as browser:
        await browser.get("/console/")
        fields = {"csrf": browser.csrf}
        path = "/console/dead-letters/acme/redrive"
        large = await browser.client.post(path, data=fields | {"receiver": "a" * (70 << 10)})
        many = await browser.client.post(path, data=fields | {"number": ["1"] * 600})
        odd = await browser.client.post(
            path, content=b"csrf=\xff\xfe", headers={"content-type": "application/x-www-form-urlencoded"}
        )
        chosen = await browser.client.post(path, data=fields | {"which": "chosen", "number": ["x", "-1"]})
    assert [each.status_code for each in (large, many, odd, chosen)] == [413, 422, 422, 422]


async def test_live_streams_are_few_for_a_session_and_end_with_it(api: Api) -> None:
    async with signed_in(api) as browser:
        page = await browser.get("/console/")
        assert 'data-live="/console/live/acme"' in page
        streams = [
            await browser.client.send(browser.client.build_request("GET", "/console/live/acme"), stream=True)
            for _ in range(4)
        ]
        assert [each.status_code for each in streams] == [200] * 4
        assert all(each.headers["content-type"].startswith("text/event-stream") for each in streams)
        refused = await browser.client.get("/console/live/acme")
        assert refused.status_code == 429
        reading = [asyncio.create_task(whole(each)) for each in streams]
        await browser.post("/console/sign-out", {})
        for text in await asyncio.gather(*reading):
            assert "the session is over" in text
        assert len(api.state.tails) == 0


async def whole(stream: httpx.Response) -> str:
    """All that a stream says until it ends."""
    return (await stream.aread()).decode()


async def test_a_live_attempt_comes_as_data_without_line_breaks(owned: Api, sink: Sink) -> None:
    """An answer with line breaks would end an event of the stream, and begin another one."""
    sink.manners["acme.billing"] = lambda _: Reply(status=500, body=b"\n\nevent: attempt\ndata: {}\n\n")
    await owned.receiver("acme.billing", url=sink.url("acme.billing"))
    async with await owned.client("acme", ["publish"]) as publisher, signed_in(owned) as browser:
        await browser.get("/console/")
        request = browser.client.build_request("GET", "/console/live/acme?receiver=billing")
        stream = await browser.client.send(request, stream=True)
        await publisher.post("/v1/tenants/acme/receivers/billing/events/order.created", json={})
        text = ""
        async for piece in stream.aiter_text():
            text += piece
            if "event: attempt" in text:
                break
        await stream.aclose()
    lines = re.findall(r"^event: attempt$", text, re.MULTILINE)
    assert len(lines) == len(re.findall(r"^event: attempt\nid: ", text, re.MULTILINE)) > 0
    assert r"\n\nevent: attempt\ndata: {}\n\n" in text
