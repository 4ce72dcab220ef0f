"""Pages that one opens from the page of a receiver: a new secret, and a replay with its job."""

import re
from collections.abc import AsyncIterator

import pytest

from angarium.console.pages.details import replay
from streams.buckets.change_trail import changed_by
from streams.nats.wire_names import EVENT_AGAIN
from streams.resending import copies
from tests.edge.api.conftest import SECRET, Api
from tests.edge.console.conftest import Browser, post_orders, signed_in
from tests.support.fleet.sink import Sink
from tests.support.waiting import until, until_true

BILLING = "/console/receivers/acme/billing"
ROTATE = f"{BILLING}/rotate-secret"
REPLAY = f"{BILLING}/replay"
HIDDEN_FIELD = re.compile(r'type="hidden" name="(\w+)" value="([^"]*)"')
NEW_SECRET = re.compile(r'id="secret"[^>]*>(whsec_[A-Za-z0-9+/=]+)<')


def hidden_fields(page: str) -> dict[str, str]:
    """The hidden fields of the first form after the heading of a page."""
    form = page.partition("<main")[2].partition("<form method")[2].partition("</form>")[0]
    return dict(HIDDEN_FIELD.findall(form))


async def test_a_new_secret_is_shown_once_and_the_old_one_signs_until_its_end(api: Api) -> None:
    await api.receiver("acme.billing", secrets=[SECRET])
    async with signed_in(api) as browser:
        page = await browser.get(ROTATE)
        assert "1 secret signs now" in page
        answer = await browser.post(ROTATE, hidden_fields(page) | {"overlap": "24h"}, 200)
        found = NEW_SECRET.search(answer.text)
        assert found is not None
        assert answer.headers["cache-control"] == "no-store"
        assert "2 secrets sign each request" in answer.text
        stored = await api.in_bucket()
        assert stored["secrets"] == [found[1]]
        assert [each["secret"] for each in stored["old_secrets"]] == [SECRET]
        for path in (BILLING, ROTATE, "/console/receivers"):
            assert found[1] not in await browser.get(path)
        message = await api.js.last_message(api.names.receivers, api.names.receiver("acme.billing"))
        assert message is not None
        assert changed_by(message).startswith("token ")


async def test_a_receiver_without_a_secret_gets_its_first_one(api: Api) -> None:
    await api.receiver("acme.billing")
    async with signed_in(api) as browser:
        page = await browser.get(ROTATE)
        assert "No secret signs now" in page
        assert "If a secret has leaked" not in page
        answer = await browser.post(ROTATE, hidden_fields(page) | {"overlap": "24h"}, 200)
        assert "Only this secret signs." in answer.text
    assert len((await api.in_bucket())["secrets"]) == 1


async def test_a_secret_is_not_made_twice_by_one_page(api: Api) -> None:
    """A reload of the page with the new secret would otherwise replace it."""
    await api.receiver("acme.billing", secrets=[SECRET])
    async with signed_in(api) as browser:
        fields = hidden_fields(await browser.get(ROTATE)) | {"overlap": "24h"}
        await browser.post(ROTATE, fields, 200)
        stored = await api.in_bucket()
        answer = await browser.post(ROTATE, fields, 409)
        assert "Nothing was done: the configuration has changed." in answer.text
        assert "whsec_" not in answer.text
        for wrong in ({"overlap": "99d"}, {"overlap": ""}, {"overlap": "-1h"}):
            await browser.post(ROTATE, fields | wrong, 422)
    assert await api.in_bucket() == stored


async def test_current_secrets_end_at_once_only_if_the_receiver_is_named(api: Api) -> None:
    await api.receiver("acme.billing", secrets=[SECRET])
    async with signed_in(api) as browser:
        fields = hidden_fields(await browser.get(ROTATE)) | {"overlap": "0s"}
        for wrong in ({}, {"receiver": "billing"}):
            answer = await browser.post(ROTATE, fields | wrong, 409)
            assert "write the name of the receiver" in answer.text
        assert (await api.in_bucket())["secrets"] == [SECRET]
        answer = await browser.post(ROTATE, fields | {"receiver": "acme.billing"}, 200)
        assert "Only this secret signs." in answer.text
    stored = await api.in_bucket()
    assert "old_secrets" not in stored
    assert stored["secrets"] != [SECRET]


@pytest.fixture
async def browser(owned: Api, sink: Sink) -> AsyncIterator[Browser]:
    """Signed in, with a receiver that has got three events."""
    await owned.receiver("acme.billing", url=sink.url("acme.billing"))
    async with signed_in(owned) as browser:
        await post_orders(owned, "billing", 0, 3)
        await until(lambda: len(sink.arrivals["acme.billing"]) == 3)
        yield browser


async def counted(browser: Browser, count: str) -> dict[str, str]:
    """Wait for a preview with that number of events; returns its form."""

    async def is_counted() -> bool:
        return f"<h2>{count}</h2>" in await browser.get(f"{REPLAY}?since=1h")

    await until_true(is_counted)
    return hidden_fields(browser.page)


async def test_past_events_are_counted_and_sent_again_by_a_job(
    owned: Api, sink: Sink, browser: Browser
) -> None:
    assert "Count the events" in await browser.get(REPLAY)
    fields = await counted(browser, "3 events")
    assert "order.created: 3" in browser.page
    assert await owned.sent_again() == []
    answer = await browser.post(REPLAY, fields)
    job = answer.headers["location"]

    async def is_done() -> bool:
        return '<span class="tag good">done</span>' in await browser.get(job)

    await until_true(is_done)
    assert "Replay of acme.billing" in browser.page
    assert "<dt>Sent again</dt><dd>3</dd>" in browser.page
    await until(lambda: len(sink.arrivals["acme.billing"]) == 6)
    assert await owned.sent_again() == ["order-0", "order-1", "order-2"]
    assert EVENT_AGAIN.lower() in sink.latest["acme.billing"].headers
    async with signed_in(owned, "other") as other:
        await other.get(job, 404)
        await other.post(f"{job}/stop", {}, 404)


async def test_a_preview_that_is_confirmed_twice_sends_its_events_once(
    owned: Api, sink: Sink, browser: Browser
) -> None:
    """A second click, or a reload after the job has ended, leads to the same job."""
    fields = await counted(browser, "3 events")
    job = (await browser.post(REPLAY, fields)).headers["location"]
    await browser.until(job, '<span class="tag good">done</span>')
    again = await browser.post(REPLAY, fields)
    assert again.headers["location"] == job
    assert await owned.sent_again() == ["order-0", "order-1", "order-2"]
    other = await browser.post(REPLAY, await counted(browser, "3 events"))
    assert other.headers["location"] != job


async def test_a_replay_sends_no_more_than_was_shown(
    owned: Api, sink: Sink, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the period is fixed when it is counted; a wrong number sends nothing."""
    fields = await counted(browser, "3 events")
    await post_orders(owned, "billing", 3, 1)
    await until(lambda: len(sink.arrivals["acme.billing"]) == 4)
    for wrong in ("", "0", "x", "9" * 40):
        answer = await browser.post(REPLAY, fields | {"confirmed_facts": wrong}, 409)
        assert "Nothing was done: other events would be sent now." in answer.text
        assert "Send 3 events again" in answer.text
    assert await owned.sent_again() == []
    monkeypatch.setattr(replay, "READ_EVENTS_MAX", 2)
    monkeypatch.setattr(copies, "PAGE_MAX", 1)
    assert hidden_fields(await browser.get(f"{REPLAY}?since=1h"))["confirmed_facts"] == "2+"
    assert "<h2>More than 2 events</h2>" in browser.page


async def test_a_job_is_stopped_on_its_page(owned: Api, browser: Browser) -> None:
    fields = await counted(browser, "3 events")
    answer = await browser.post(REPLAY, fields | {"rate": "1/hour"})
    job = answer.headers["location"]
    assert "Stop it" in await browser.get(job)
    again = await browser.post(REPLAY, fields | {"key": "of another preview"})
    assert again.headers["location"] == job
    assert "Another replay of this receiver is unfinished" in await browser.get(job)
    await browser.post(f"{job}/stop", {})
    assert "is asked to stop" in await browser.get(job)

    async def has_stopped() -> bool:
        return '<span class="tag calm">stopped</span>' in await browser.get(job)

    await until_true(has_stopped)
    assert len(await owned.sent_again()) < 3


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("since=yesterday", "is not a time"),
        ("since=1h&until=2h", "the end must be later"),
        ("since=1h&types=<script>", "is not an event type"),
        ("since=1h&rate=fast", "is not a rate"),
        ("since=1h&types=" + "a+" * 17, "at most 16 types"),
    ],
)
async def test_a_form_of_a_replay_that_is_wrong_says_what(api: Api, query: str, says: str) -> None:
    await api.receiver("acme.billing")
    async with signed_in(api) as browser:
        page = await browser.get(f"{REPLAY}?{query}", 422)
    assert says in page.replace("The end", "the end").replace("At most", "at most")
    assert "<script>" not in page.partition("<main")[2]
    if says == "is not a time":
        assert "1w) or 2026-01-31T12:00:00Z.</p>" in page


async def test_a_replay_of_events_of_one_time_names_that_time_once(owned: Api, sink: Sink) -> None:
    await owned.receiver("acme.billing", url=sink.url("acme.billing"))
    async with signed_in(owned) as browser:
        await post_orders(owned, "billing", 0, 1)
        await until(lambda: len(sink.arrivals["acme.billing"]) == 1)
        await counted(browser, "1 event")
        assert "<p>Published at <time" in browser.page
        assert " in all. With " in browser.page
        await post_orders(owned, "billing", 1, 1)
        await until(lambda: len(sink.arrivals["acme.billing"]) == 2)
        await counted(browser, "2 events")
        assert "<p>Published from <time" in browser.page


async def test_a_job_that_no_process_runs_yet_is_taken_up_by_this_one(owned: Api, browser: Browser) -> None:
    fields = await counted(browser, "3 events")
    await owned.state.jobs.stop()
    job = (await browser.post(REPLAY, fields)).headers["location"]
    assert "</span> it starts within seconds</p>" in await browser.get(job)
    assert "angarium api" not in browser.page


@pytest.mark.parametrize("path", ["rotate-secret", "replay", "replay?since=1h"])
async def test_changes_need_the_scope_and_the_tenant_of_the_receiver(api: Api, path: str) -> None:
    await api.receiver("acme.billing")
    async with signed_in(api, "acme", ["read"]) as reader:
        page = await reader.get(BILLING)
        assert "rotate-secret" not in page
        await reader.get(f"{BILLING}/{path}", 404)
        await reader.post(f"{BILLING}/{path.partition('?')[0]}", {"overlap": "24h"}, 404)
    async with signed_in(api, "other") as other:
        await other.get(f"{BILLING}/{path}", 404)
        await other.get("/console/receivers")
        await other.post(f"{BILLING}/{path.partition('?')[0]}", {"overlap": "24h"}, 404)
    async with signed_in(api) as manager:
        await manager.get(f"{BILLING.replace('billing', 'nobody')}/{path}", 404)
        await manager.get("/console/receivers")
        for csrf in ("", "wrong"):
            answer = await manager.client.post(f"{BILLING}/{path.partition('?')[0]}", data={"csrf": csrf})
            assert answer.status_code == 409
