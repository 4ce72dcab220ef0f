"""An event that no ledger has: its place in the queue, what it waits for, or why no receiver gets it."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from angarium.cli.ledger_records.event import erased_text, place_text
from angarium.connecting import Access
from angarium.node.app import open_node
from angarium.operations.events import search as event_search
from angarium.operations.events.search import (
    ErasedEvent,
    EventSearch,
    WaitingDelivery,
    due_s,
    search_event,
)
from angarium.operations.failures import NotDone
from angarium.operations.receivers.overview.health import ReceiverHealth
from angarium.settings import Settings
from streams.erasing.erasures import Erasures
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from tests.support.installation import SHARDS, install, publish
from tests.support.waiting import until, until_true

NAME = "acme.billing"
PAUSED = b'{"url": "https://a.example/", "paused": true}'


@pytest.fixture
async def access(nats_url: str, prefix: str) -> AsyncIterator[Access]:
    """An installation with a node, which owns all shards and posts nothing: every receiver is paused."""
    settings = Settings(nats=(nats_url,), prefix=prefix, shards=SHARDS, node="a")
    js = JetStream(await connect(ConnectOptions(servers=(nats_url,))))
    await js.start()
    await install(js, prefix)
    async with open_node(settings) as node:
        await until(lambda: len(node.owned) == SHARDS)
        yield Access(js, settings)
    await js.stop()
    await js.wire.close()


async def search(access: Access, event: str, *recorded: str, tenant: str | None = "acme") -> EventSearch:
    found = await search_event(access, event, tenant, recorded)
    assert isinstance(found, EventSearch), found
    return found


async def put(access: Access, receiver: str, raw: bytes = PAUSED) -> None:
    await access.js.publish(access.names.receiver(receiver), raw)


async def send(access: Access, receiver: str, event: str) -> None:
    await publish(access.js, access.names, receiver, b"{}", {"Angarium-Id": event})


async def test_an_event_that_waits_has_a_place_and_a_reason(access: Access) -> None:
    await put(access, NAME)
    for number in range(1, 4):
        await send(access, NAME, f"e{number}")
    for number in range(1, 4):
        (waits,) = (await search(access, f"e{number}", tenant=None)).waiting
        assert (waits.receiver, waits.place, waits.waiting) == (NAME, number, 3)
        assert (waits.why, waits.remedy, waits.due_s) == ("paused", "resume", None)
    assert (await search(access, "e2", NAME)).waiting == []
    assert place_text(waits) == (
        f"acme.billing: waiting, place 3 of 3, stored {waits.stored_at}: paused; to continue, run angarium "
        "receiver resume acme.billing"
    )


async def test_an_event_that_waits_nowhere_has_one_reason(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(access, NAME, PAUSED.replace(b"}", b', "events": ["order.*"]}'))
    await send(access, "acme.nobody", "lost")
    await access.js.publish(
        access.names.publish_event("acme", "bill.sent"), b"{}", {"Angarium-Id": "unheard"}
    )
    await send(access, NAME, "early")

    async def why(event: str) -> str:
        found = await search(access, event)
        assert found.waiting == []
        return found.why_none

    async def buried() -> bool:
        return await why("lost") == "it is dead letter 1, for acme.nobody (unknown_receiver)"

    await until_true(buried)
    assert await why("unheard") == "it was published a moment ago; ask again"
    monkeypatch.setattr(event_search, "ON_ITS_WAY_S", 0.0)
    assert (await why("unheard")).endswith("Z, and no receiver of acme subscribed to bill.sent")
    assert "no stream has it, so it was not published under this id" in await why("never")
    assert await search(access, "never", NAME) == EventSearch(waiting=[], why_none="", notes=[])
    monkeypatch.setattr(event_search, "SEARCHED_MAX", 1)
    monkeypatch.setattr(event_search, "PAGE_MESSAGES", 1)
    await send(access, NAME, "late")
    found = await search(access, "late")
    assert found.notes == ["more than 1 events wait for acme.billing; only those were searched"]
    assert await why("never") == "it is not among the newest 1 messages of the streams"
    monkeypatch.setattr(event_search, "RECEIVERS_MAX", 0)
    assert (await search(access, "late")).notes == ["1 receivers are too many to search their waiting events"]


async def test_an_event_that_was_erased_is_known_by_the_record_of_that(access: Access) -> None:
    """An event that was only waiting in the stream leaves no delivery in any ledger."""
    await put(access, NAME)
    erasures = Erasures(access.js, access.names)
    await erasures.request("acme", "gone", "root@vm", 1.0)
    for tenant in ("acme", None):
        found = await search(access, "gone", tenant=tenant)
        (erased,) = found.erased
        assert erased == ErasedEvent(tenant="acme", at=erased.at, by="root@vm")
        assert found.why_none.startswith("its erasure is under way" if erased.at is None else "it was erased")

    async def done() -> bool:
        (erased,) = (await search(access, "gone")).erased
        return erased.at is not None

    await until_true(done)
    found = await search(access, "gone")
    assert (found.waiting, found.stored) == ([], False)
    assert found.why_none.startswith("it was erased 2")
    assert (await search(access, "gone", NAME)).erased == found.erased
    assert erased_text("gone", found.erased[0]) == f"gone: erased {found.erased[0].at}, asked by root@vm"
    assert erased_text("gone", replace(found.erased[0], at=None)) == (
        "gone: its erasure, asked by root@vm, is under way"
    )
    await send(access, NAME, "gone")
    assert [each.place for each in (await search(access, "gone")).waiting] == [1]


async def test_a_tenant_that_cannot_be_is_wrong_input(access: Access) -> None:
    found = await search_event(access, "e1", "a b")
    assert isinstance(found, NotDone)
    assert found.kind == "invalid"


async def test_an_owner_that_does_not_answer_leaves_the_place_open(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(access, NAME)
    await send(access, NAME, "e1")
    silent = NotDone(kind="unanswered", text="no node answered for acme.billing")

    async def answer(*_: object) -> NotDone:
        return silent

    monkeypatch.setattr(event_search, "state", answer)
    (waits,) = (await search(access, "e1")).waiting
    assert place_text(waits) == f"acme.billing: waiting, stored {waits.stored_at}: {silent.text}"


BUCKET = {"effective_limit": 30.0, "per": "minute"}
PACE = ReceiverHealth(
    phase="active", waiting=9, oldest_at=None, failing_since=None, disabled=None, in_per_s=0.0, out_per_s=2.0,
    drain_s=None, limited_by="latency",
)  # fmt: skip


@pytest.mark.parametrize(
    ("live", "pace", "place", "expected"),
    [
        ({"phase": "active", "bucket": None}, PACE, 8, 4.0),
        ({"phase": "active", "bucket": BUCKET}, PACE, 8, 4.0),
        ({"phase": "active", "bucket": BUCKET}, replace(PACE, limited_by="rate"), 8, 16.0),
        ({"phase": "active", "bucket": BUCKET}, None, 8, 16.0),
        ({"phase": "active", "bucket": BUCKET}, replace(PACE, limited_by=None, out_per_s=0.2), 8, 16.0),
        ({"phase": "active", "bucket": None}, replace(PACE, limited_by="unknown", out_per_s=0.2), 8, None),
        ({"phase": "active", "bucket": None}, replace(PACE, out_per_s=0.0), 8, None),
        ({"phase": "paused", "bucket": BUCKET, "resume_at": None}, PACE, 1, None),
        ({"phase": "backing_off", "bucket": None, "resume_at": "2026-01-31T12:00:09Z"}, PACE, 1, 9.0),
        ({"phase": "backing_off", "bucket": None, "resume_at": "2026-01-31T12:00:09Z"}, PACE, 2, None),
    ],
)
def test_the_turn_of_an_event_is_told_if_the_pace_is_known(
    live: dict[str, object], pace: ReceiverHealth | None, place: int, expected: float | None
) -> None:
    assert due_s(live, pace, place, 1769860800.0) == expected
    waits = WaitingDelivery(
        receiver=NAME, stored_at="2026-01-31T12:00:00.000Z", place=place, waiting=9, why="it is",
        remedy=None, due_s=expected,
    )  # fmt: skip
    assert ("its turn comes in about" in place_text(waits)) == (expected is not None)
