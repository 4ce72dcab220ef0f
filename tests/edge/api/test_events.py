"""An event over HTTP: its record in the ledger, where else it waits, and why no receiver gets it."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from actors.times_as_text import instant_text
from angarium.api.queries import event_searches
from angarium.node.app import open_node
from angarium.operations.events import search as event_search
from angarium.operations.failures import NotDone
from angarium.settings import Settings
from streams.erasing.erasures import Erasures, finished
from streams.installation.partitions import partition_of
from streams.nats.wire_names import DELIVER_AT, DUE, EVENT_AGAIN, EVENT_ID
from streams.observation import unrouted_events
from tests.edge.api.conftest import SHARDS, Api, problem
from tests.support.installation import publish
from tests.support.ledgers import JournalWriter, catch_up, delivered, in_file, opens
from tests.support.waiting import until, until_true

PATIENCE_S = 30.0
EVENTS = "/v1/tenants/acme/events"


@pytest.fixture
async def reader(api: Api, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an API whose ledger has a delivery of e1, to acme.billing, and two of e2."""
    journal = JournalWriter(api.js, api.names)
    await journal.flush(opens(), delivered(1), delivered(2))
    await journal.flush(opens("acme.mail"), delivered(2, receiver="acme.mail"))
    await catch_up(api.js, api.names, in_file(settings.ledger))
    async with await api.client("acme", ["read"]) as client:
        yield client


@pytest.fixture
async def node(settings: Settings, reader: httpx.AsyncClient) -> AsyncIterator[None]:
    """A node that owns all shards."""
    async with open_node(replace(settings, node="a")) as running:
        await until(lambda: len(running.owned) == SHARDS)
        yield


async def found(client: httpx.AsyncClient, event: str, **query: Any) -> Any:
    answer = await client.get(f"{EVENTS}/{event}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def waits(api: Api, receiver: str, *events: str) -> None:
    """A paused receiver, for which these events wait."""
    await api.receiver(receiver, paused=True)
    for event in events:
        await publish(api.js, api.names, receiver, b"{}", {EVENT_ID: event})


async def test_an_event_that_waits_is_shown_with_its_place_and_why(
    api: Api, reader: httpx.AsyncClient, node: None
) -> None:
    await waits(api, "acme.slow", "e0", "e1", "e9")
    told = await found(reader, "e9")
    assert told["deliveries"] == []
    assert told["notes"] == []
    (waiting,) = told["waiting"]
    assert waiting.pop("stored_at").endswith("Z")
    assert waiting == {
        "receiver": "acme.slow", "again": None, "place": 3, "waiting": 3, "due_s": None, "why": "paused",
        "remedy": "POST /v1/tenants/acme/receivers/slow/resume",
    }  # fmt: skip
    told = await found(reader, "e1")
    assert [each["state"] for each in told["deliveries"]] == ["delivered"]
    assert [(each["receiver"], each["place"]) for each in told["waiting"]] == [("acme.slow", 2)]
    async with await api.client("other", ["read"]) as other:
        problem(await other.get("/v1/tenants/other/events/e9"), 404, "not-found")


async def test_an_event_that_was_due_says_how_late_it_was(
    api: Api, reader: httpx.AsyncClient, node: None
) -> None:
    await api.receiver("acme.shop", events=["timed"])
    second = math.ceil(time.time()) + 1
    headers = {EVENT_ID: "timed", DELIVER_AT: instant_text(second - 0.5)}
    await api.js.publish(api.names.publish_event("acme", "timed"), b"{}", headers)

    async def was_due() -> bool:
        answer = await reader.get(f"{EVENTS}/timed")
        return answer.status_code == 200 and bool(answer.json()["due"])

    await until_true(was_due)
    (due,) = (await found(reader, "timed"))["due"]
    original, again = await api.stored(api.names.events)
    assert (original.headers[DELIVER_AT], DUE in again.headers) == (headers[DELIVER_AT], True)
    accepted_at = instant_text(again.stored_at)
    late_s = round(again.stored_at - second, 3)
    assert due == {"due_at": instant_text(second), "accepted_at": accepted_at, "late_s": late_s}
    assert (await found(reader, "e1"))["due"] == []


async def test_an_event_that_is_sent_again_waits_although_its_delivery_is_recorded(
    api: Api, reader: httpx.AsyncClient, node: None
) -> None:
    await api.receiver("acme.billing", paused=True)
    await publish(api.js, api.names, "acme.billing", b"{}", {EVENT_ID: "e1", EVENT_AGAIN: "dead-1"})
    told = await found(reader, "e1")
    assert [(each["state"], each["again"]) for each in told["deliveries"]] == [("delivered", None)]
    assert [(each["receiver"], each["again"]) for each in told["waiting"]] == [("acme.billing", "dead-1")]


async def test_an_event_that_waits_to_be_routed_says_so(
    api: Api, reader: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No node runs, so nothing says yet whether a receiver gets it."""
    monkeypatch.setattr(event_search, "ON_ITS_WAY_S", 0.0)
    monkeypatch.setattr(unrouted_events, "ROUTED_WITHIN_S", 0.0)
    await api.receiver("acme.shop", events=["order.*"])
    for event in ("r1", "r2"):
        await api.js.publish(api.names.publish_event("acme", "order.created"), b"{}", {EVENT_ID: event})
    partition = partition_of("acme", SHARDS)
    told = await found(reader, "r2")
    assert (told["deliveries"], told["waiting"]) == ([], [])
    assert told["why_none"] == (
        f"it waits to be routed: 1 event of acme comes before it; no live node owns partition {partition}"
    )
    async with await api.client("*", ["operate"]) as operator:
        findings = (await operator.get("/v1/alerts")).json()["findings"]
    [finding] = [each for each in findings if each["subject"] == "tenants"]
    assert finding["text"].startswith("2 events of acme wait to be routed, the oldest for ")
    assert finding["level"] == "warning"


async def test_each_page_has_what_waits_between_its_receivers(
    api: Api, reader: httpx.AsyncClient, node: None
) -> None:
    for name in ("acme.abc", "acme.north", "acme.zulu"):
        await waits(api, name, "e2")

    async def pages() -> list[list[str]]:
        names, cursor = list[list[str]](), None
        while not names or cursor:
            page = await found(reader, "e2", limit=1, **({"cursor": cursor} if cursor else {}))
            cursor = page["next_cursor"]
            names.append([each["receiver"] for each in (*page["deliveries"], *page["waiting"])])
        return names

    async def are_known() -> bool:
        """True when the API knows of all receivers: it hears of new ones a moment later."""
        return len((await pages())[-1]) == 3

    await until_true(are_known)
    assert await pages() == [["acme.billing", "acme.abc"], ["acme.mail", "acme.north", "acme.zulu"]]


async def test_an_event_that_only_a_stream_has_says_why_no_receiver_gets_it(
    api: Api, reader: httpx.AsyncClient, node: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(api.js, api.names, "acme.unknown", b"{}", {EVENT_ID: "lost"})

    async def buried() -> bool:
        told = await reader.get(f"{EVENTS}/lost")
        return bool(told.status_code == 200 and told.json()["why_none"].startswith("it is dead letter 1"))

    await until_true(buried)
    assert (await found(reader, "lost"))["deliveries"] == []
    why = problem(await reader.get(f"{EVENTS}/never"), 404, "not-found")
    assert "event never is unknown: it was never published under this id" in why
    monkeypatch.setattr(event_search, "RECEIVERS_MAX", 0)
    await api.receiver("acme.slow", paused=True)
    why = problem(await reader.get(f"{EVENTS}/never"), 404, "not-found")
    assert "; 1 receivers are too many to search their waiting events" in why


async def test_an_event_that_was_erased_says_when_and_who_asked(api: Api, reader: httpx.AsyncClient) -> None:
    erasures = Erasures(api.js, api.names)
    for event in ("e1", "gone", "never"):
        await erasures.request("acme", event, "root@vm", 1.0)
        told = await found(reader, event)
        assert told["erased"] == {"at": None, "by": "root@vm"}
    async for request, revision in erasures.pending():
        erased = replace(request, events=int(request.event == "gone"))
        await erasures.store_progress(finished(erased, 2.0, 1), revision)
    problem(await reader.get(f"{EVENTS}/never"), 404, "not-found")
    told = await found(reader, "gone")
    at = "1970-01-01T00:00:02.000Z"
    assert told["erased"] == {"at": at, "by": "root@vm"}
    assert (told["deliveries"], told["waiting"], told["why_none"]) == ([], [], f"it was erased at {at}")
    told = await found(reader, "e1")
    assert (len(told["deliveries"]), told["erased"]["at"], told["why_none"]) == (1, at, None)
    assert (await found(reader, "e2"))["erased"] is None
    async with await api.client("other", ["read"]) as other:
        problem(await other.get("/v1/tenants/other/events/gone"), 404, "not-found")


async def test_if_the_streams_cannot_be_searched_a_member_says_so(
    api: Api, reader: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> NotDone:
        return NotDone(kind="unavailable", text="NATS is away")

    monkeypatch.setattr(event_searches, "search_event", fails)
    told = await found(reader, "e1")
    assert len(told["deliveries"]) == 1
    assert (told["waiting"], told["notes"]) == (None, ["where it waits is not known: NATS is away"])
    assert "NATS is away" in problem(await reader.get(f"{EVENTS}/e9"), 503, "unavailable")


async def test_a_search_that_runs_out_of_time_returns_what_it_found(
    api: Api, reader: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(*_: object) -> NotDone:
        await asyncio.sleep(PATIENCE_S)
        raise AssertionError("nothing ended it")

    await waits(api, "acme.slow", "e1")
    monkeypatch.setattr(event_search, "inspect_receiver", slow)
    monkeypatch.setattr(event_searches, "RECEIVERS_TIMEOUT_S", 0.2)
    told = await found(reader, "e1")
    assert len(told["deliveries"]) == 1
    assert told["waiting"] == []
    assert told["notes"] == ["1 of 1 receivers could not be searched within 0.2 s"]
    monkeypatch.setattr(event_searches, "SEARCH_TIMEOUT_S", 0.0)
    told = await found(reader, "e1")
    assert told["waiting"] is None
    assert told["notes"] == ["where it waits is not known: the search took longer than 0 s"]


async def test_a_tenants_searches_leave_room_for_others(api: Api, reader: httpx.AsyncClient) -> None:
    searches = api.state.search_limits
    with searches.admit("acme"), searches.admit("acme"), searches.admit("acme"), searches.admit("acme"):
        problem(await reader.get(f"{EVENTS}/e1"), 503, "unavailable")
        async with await api.client("other", ["read"]) as other:
            problem(await other.get("/v1/tenants/other/events/e1"), 404, "not-found")
    assert (await reader.get(f"{EVENTS}/e1")).status_code == 200
