"""Bodies of events that the stream still has: as their receiver gets them, harmless, and for their tenant."""

import pytest

from streams.nats.wire_names import EVENT_ID
from tests.edge.api.conftest import MAX_BODY, Api
from tests.edge.console.conftest import Browser, signed_in
from tests.support.fleet.sink import Sink
from tests.support.installation import publish
from tests.support.ledgers import JournalWriter, catch_up, delivered, in_file, numbered, opens
from tests.support.waiting import until, until_true

HOSTILE = b"<script>alert(1)</script>\x1b[2J\xff\xe2\x80\xae\"'{{ 7 * 7 }}"
SECRET_BODY = b'{"secret": "hunter2", "order": 7}'


def address(event: str, name: str = "billing", tenant: str = "acme") -> str:
    return f"/console/events/{tenant}/{event}/for/{name}"


async def send(api: Api, event: str, body: bytes, **headers: str) -> None:
    """Publish an event for the receiver."""
    await publish(api.js, api.names, "acme.billing", body, {EVENT_ID: event} | headers)


async def shown(browser: Browser, event: str, text: str) -> str:
    """The page of the body, once it has that text."""

    async def is_there() -> bool:
        answer = await browser.client.get(address(event))
        browser.page = answer.text
        return answer.status_code == 200 and text in answer.text

    await until_true(is_there)
    return browser.page


async def test_an_event_that_waits_and_one_that_was_delivered_show_headers_and_body(
    watched: Api, sink: Sink
) -> None:
    await watched.receiver("acme.billing", url=sink.url("acme.billing"))
    async with signed_in(watched, "acme", ["read"]) as browser:
        await send(watched, "e1", b'{"order": 1}', **{"Content-Type": "application/json"})
        await until(lambda: bool(sink.arrivals["acme.billing"]))
        page = await shown(browser, "e1", "{&#34;order&#34;: 1}")
        assert '<th scope="row">Content-Type</th><td>application/json</td>' in page
        await browser.until("/console/events/acme/e1", "settled: delivered")
        assert f'href="{address("e1")}"' in browser.page
        await watched.receiver("acme.billing", url=sink.url("acme.billing"), paused=True)
        await browser.until("/console/receivers/acme/billing", "paused")
        await send(watched, "e2", b"waits", **{"Content-Type": "text/plain"})
        await shown(browser, "e2", ">waits</pre>")
        await browser.until("/console/events/acme/e2", f'href="{address("e2")}"')


async def test_a_header_that_no_receiver_gets_is_not_shown(watched: Api, sink: Sink) -> None:
    """A producer may add headers to an event for one receiver: only the stream has them."""
    await watched.receiver("acme.billing", url=sink.url("acme.billing"))
    await send(watched, "e1", b"{}", **{"x-customer": "hunter2", "content-type": "text/plain"})
    await until(lambda: bool(sink.arrivals["acme.billing"]))
    assert "hunter2" not in sink.latest["acme.billing"].headers.values()
    async with signed_in(watched, "acme", ["read"]) as browser:
        page = await shown(browser, "e1", "<td>text/plain</td>")
        assert "hunter2" not in page


async def test_a_hostile_body_is_a_text_and_is_saved_as_it_is(watched: Api) -> None:
    await watched.receiver("acme.billing", paused=True)
    await send(watched, "e1", HOSTILE, **{"x-evil": "<script>alert(2)</script>"})
    await send(watched, "e2", b"<" * MAX_BODY)
    async with signed_in(watched) as browser:
        page = await shown(browser, "e1", "It is not UTF-8")
        assert "<script>alert" not in page
        assert "\x1b" not in page
        assert "\u202e" not in page
        assert r"\x1b[2J\xff" in page
        assert "{{ 7 * 7 }}" in page
        saved = await browser.client.get(f"{address('e1')}/body")
        assert saved.content == HOSTILE
        assert saved.headers["content-disposition"].startswith("attachment")
        assert saved.headers["content-type"] == "application/octet-stream"
        assert await shown(browser, "e2", "&lt;" * MAX_BODY)


async def test_the_body_is_the_one_that_the_transform_leaves(watched: Api, sink: Sink) -> None:
    """After another transform came into force, it is not known which one the event had."""
    url = sink.url("acme.billing")
    await watched.receiver("acme.billing", url=url, transform={"drop": ["/secret"]})
    async with signed_in(watched) as browser:
        await send(watched, "e1", SECRET_BODY)
        await until(lambda: bool(sink.arrivals["acme.billing"]))
        page = await shown(browser, "e1", "&#34;order&#34;")
        assert "hunter2" not in page

        async def is_saved() -> bool:
            saved = await browser.client.get(f"{address('e1')}/body")
            return saved.status_code == 200 and saved.json() == {"order": 7}

        await until_true(is_saved)
        await watched.receiver("acme.billing", url=url)
        assert "hunter2" not in await shown(browser, "e1", "configured a moment ago")
        await shown(browser, "e1", "another transform")
        await send(watched, "e2", SECRET_BODY)
        await until(lambda: len(sink.arrivals["acme.billing"]) == 2)
        page = await shown(browser, "e1", "another transform")
        assert "hunter2" not in page
        assert (await browser.client.get(f"{address('e1')}/body")).status_code == 404
        await watched.receiver("acme.billing", url=url, transform={"keep": ["/order"]})
        assert "hunter2" not in await shown(browser, "e2", "not shown")


@pytest.mark.parametrize(("receiver", "event"), [("acme.billing", "e2"), ("other.billing", "e1")])
async def test_another_message_at_the_recorded_position_is_not_shown(
    api: Api, receiver: str, event: str
) -> None:
    """The end of a stream can be lost; its positions are then used again."""
    await api.receiver("acme.billing")
    position = await publish(api.js, api.names, receiver, b"another body", {EVENT_ID: event})
    await JournalWriter(api.js, api.names).flush(
        opens(), delivered(1, events=(numbered(1, position=position),))
    )
    await catch_up(api.js, api.names, in_file(api.to.settings.ledger))
    async with signed_in(api) as browser:
        assert "has no copy of this event" in await browser.get(address("e1"), 404)


@pytest.mark.parametrize("suffix", ["", "/body"])
async def test_no_other_event_receiver_or_tenant_has_a_body(watched: Api, suffix: str) -> None:
    for receiver in ("acme.billing", "acme.mail", "other.billing"):
        await watched.receiver(receiver, paused=True)
    await send(watched, "e1", b"{}")
    async with signed_in(watched) as browser, signed_in(watched, "other") as other:
        await shown(browser, "e1", "{}")
        for path in (
            address("e2"), address("e1", "mail"), address("e1", "nobody"), address("e1", "a*"),
            address("not%20an%20id"), address("e1", tenant="other"),
        ):  # fmt: skip
            answer = await browser.client.get(path + suffix)
            assert answer.status_code in (404, 422), path
            assert "Save it" not in answer.text
        await other.get(address("e1") + suffix, 404)
        await other.get(address("e1", tenant="other") + suffix, 404)
