"""Actions: previewed with their numbers, done in the name of the token, and not done if the facts changed."""

import re
from collections.abc import AsyncIterator

import pytest

from streams.buckets.change_trail import changed_by
from tests.edge.api.conftest import Api
from tests.edge.console.conftest import Browser, post_orders, signed_in
from tests.support.fleet.sink import Reply, Sink
from tests.support.waiting import until_true

BILLING = "/console/receivers/acme/billing"
NAMED = {"receiver": "acme.billing"}
CONFIRMED_FACTS = re.compile(r'name="confirmed_facts" value="([^"]*)"')


@pytest.fixture
async def browser(owned: Api, sink: Sink) -> AsyncIterator[Browser]:
    """Signed in, with a receiver that is paused and has three events."""
    await owned.receiver("acme.billing", url=sink.url("acme.billing"), paused=True)
    async with signed_in(owned) as browser:
        await post_orders(owned, "billing", 0, 3)
        await backlog(browser, 3)
        yield browser


async def backlog(browser: Browser, count: int) -> None:
    """Wait until the page of the receiver shows that so many events wait."""

    async def is_shown() -> bool:
        return f'<dd id="backlog">{count}</dd>' in await browser.get(BILLING)

    await until_true(is_shown)


async def do(browser: Browser, action: str, says: str, status: int = 303) -> str:
    """Look at the preview of an action, which has to say this, and confirm it; returns the next page."""
    preview = await browser.get(f"{BILLING}/{action}")
    assert says in preview
    facts = CONFIRMED_FACTS.search(preview)
    assert facts is not None
    answer = await browser.post(f"{BILLING}/{action}", NAMED | {"confirmed_facts": facts[1]}, status)
    return answer.text if status != 303 else await browser.get(answer.headers["location"])


async def test_an_operator_skips_resumes_pings_and_pauses(owned: Api, sink: Sink, browser: Browser) -> None:
    page = await do(browser, "skip", "1 event, order-0 with the number 1, becomes a dead letter.")
    assert "The event order-0, number 1, is a dead letter now." in page
    assert "order-0" in await browser.get("/console/dead-letters")
    page = await do(browser, "resume", "Resume, and send 2 events")
    assert "It is resumed." in page
    await backlog(browser, 0)
    assert len(sink.arrivals["acme.billing"]) == 2
    assert "The receiver answered 200" in await do(browser, "ping", "Send the ping")
    assert "It is paused." in await do(browser, "pause", "No event waits now.")
    assert "It is paused." not in await browser.get(BILLING)
    assert (await owned.in_bucket())["paused"] is True
    stored = await owned.js.last_message(owned.names.receivers, owned.names.receiver("acme.billing"))
    assert stored is not None
    assert changed_by(stored).startswith("token ")


async def test_forgetting_names_the_number_of_events_and_discards_no_more(
    owned: Api, browser: Browser
) -> None:
    preview = await browser.get(f"{BILLING}/forget")
    assert "Discard 3 events" in preview
    await post_orders(owned, "billing", 3, 12)
    await backlog(browser, 15)
    answer = await browser.post(f"{BILLING}/forget", NAMED | {"confirmed_facts": "3 1"}, 409)
    assert "Nothing was done: the receiver has changed." in answer.text
    assert "Discard 15 events" in answer.text
    await backlog(browser, 15)
    for wrong in ("", "-1", "1e9", "9" * 5000, "15"):
        await browser.get(BILLING)
        await browser.post(f"{BILLING}/forget", NAMED | {"confirmed_facts": wrong}, 409)
    page = await do(browser, "forget", "15 events will be discarded")
    assert "15 events discarded. The next event gets the number 16." in page


async def test_forgetting_has_to_be_confirmed_by_the_name_of_the_receiver(browser: Browser) -> None:
    assert "To confirm, write <strong>acme.billing</strong>" in await browser.get(f"{BILLING}/forget")
    for wrong in ({}, {"receiver": ""}, {"receiver": "acme.mail"}):
        answer = await browser.post(f"{BILLING}/forget", wrong | {"confirmed_facts": "3 1"}, 409)
        assert "write the name of the receiver to confirm" in answer.text
    await backlog(browser, 3)


async def test_an_old_confirmation_discards_no_other_events(owned: Api, browser: Browser) -> None:
    """The number alone may be right, while the events that were seen are gone."""
    await do(browser, "resume", "Resume, and send 3 events")
    await backlog(browser, 0)
    await do(browser, "pause", "No event waits now.")
    await post_orders(owned, "billing", 3, 3)
    await backlog(browser, 3)
    answer = await browser.post(f"{BILLING}/forget", NAMED | {"confirmed_facts": "3 1"}, 409)
    assert "Discard 3 events" in answer.text
    await backlog(browser, 3)


async def test_resuming_sends_no_more_than_was_shown(owned: Api, browser: Browser) -> None:
    await browser.get(f"{BILLING}/resume")
    await post_orders(owned, "billing", 3, 12)
    await backlog(browser, 15)
    answer = await browser.post(f"{BILLING}/resume", {"confirmed_facts": "3"}, 409)
    assert "Resume, and send 15 events" in answer.text
    assert (await owned.in_bucket())["paused"] is True


async def test_skipping_is_about_the_event_that_was_shown(browser: Browser) -> None:
    await browser.get(f"{BILLING}/skip")
    await browser.post(f"{BILLING}/skip", {"confirmed_facts": "1 order-0"})
    await browser.get(f"{BILLING}/skip")
    answer = await browser.post(f"{BILLING}/skip", {"confirmed_facts": "1 order-0"}, 409)
    assert "1 event, order-1 with the number 2" in answer.text
    await backlog(browser, 2)


async def test_a_receiver_is_asked_to_prove_itself(owned: Api, sink: Sink, browser: Browser) -> None:
    await owned.receiver(
        "acme.new", url=sink.url("acme.new"), handshake="hmac", secrets=["whsec_" + "A" * 32]
    )
    sink.proofs["acme.new"] = lambda _: Reply()

    async def is_offered() -> bool:
        return "/acme/new/verify" in await browser.get("/console/receivers/acme/new")

    await until_true(is_offered)
    await browser.get("/console/receivers/acme/new/verify")
    await browser.post("/console/receivers/acme/new/verify", {"confirmed_facts": ""})
    assert "The receiver has not proved itself: " in await browser.get("/console/receivers/acme/new")


async def test_there_is_no_other_action_and_no_receiver_of_another_name(browser: Browser) -> None:
    await browser.get(f"{BILLING}/explode", 404)
    await browser.get("/console/receivers/acme/nothing", 404)
    await browser.get("/console/receivers/acme/nothing/pause", 404)


async def test_without_a_node_the_page_says_so(api: Api) -> None:
    await api.receiver("acme.billing")
    async with signed_in(api) as browser:
        page = await browser.get(BILLING)
        assert "no node answered for acme.billing" in page
        assert "only these can be done now" in page
        assert f"{BILLING}/rotate-secret" in page
        assert f"{BILLING}/pause" not in page
