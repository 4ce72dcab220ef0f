"""An event that no ledger has: its place in the queue and what it waits for, or why no receiver gets it."""

import time
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from actors.configuration.policy import Rate
from actors.tenant_settings import TenantSettings
from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.cli.ledger_queries.event import erased_text, place_text
from angarium.node.app import open_node
from angarium.operations.control_requests.held_receivers import HeldReceiver, held_receivers
from angarium.operations.control_requests.inspection import inspect_with_unrouted
from angarium.operations.events import search as event_search
from angarium.operations.events.cancel_timed import CancelledEvents, cancel_timed
from angarium.operations.events.search import (
    ErasedEvent,
    EventSearch,
    WaitingDelivery,
    due_s,
    search_event,
)
from angarium.operations.failures import NotDone
from angarium.operations.installation.doctor.all_checks import installation_problems
from angarium.operations.ledger_queries.ledger_access import LedgerLag
from angarium.operations.receiver_list.health import ReceiverHealth
from angarium.operations.receiver_list.top import Top
from angarium.quantities import parse_time
from angarium.settings import Settings
from streams.erasing.erasures import Erasures
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.nats.protocol import LINES_MAX
from tests.support.installation import SHARDS, install, publish
from tests.support.waiting import until, until_true

NAME = "acme.billing"
PAUSED = b'{"url": "https://a.example/", "paused": true}'


@pytest.fixture
async def access(nats_url: str, prefix: str) -> AsyncIterator[Access]:
    """An installation with a node, which owns all shards and posts nothing: every receiver is paused."""
    tenants = {"late": TenantSettings(rate=Rate(limit=4, per="minute"))}
    settings = Settings(nats=(nats_url,), prefix=prefix, shards=SHARDS, node="a", tenants=tenants)
    js = JetStream(await connect(ConnectOptions(servers=(nats_url,))))
    await js.start()
    await install(js, prefix)
    async with open_node(settings) as node:
        await until(lambda: len(node.owned) == SHARDS)
        yield Access(js, settings)
    await js.stop()
    await js.wire.close()


async def search(access: Access, event: str, *recorded: str, tenant: str | None = "acme") -> EventSearch:
    """Search for an event; the original deliveries to these receivers are recorded."""
    found = await search_event(access, event, tenant, {each: [None] for each in recorded})
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
        f"acme.billing: waits at place 3 of 3, stored {waits.stored_at}: paused; to continue, run angarium "
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

    async def recorded() -> bool:
        """True when it is recorded that it is routed, which takes a second."""
        return (await why("unheard")).endswith("Z, and no receiver of acme subscribed to bill.sent")

    await until_true(recorded)
    await put(access, "acme.choosy", b'{"url": "https://a.example/", "filter": "total"}')
    assert (await why("unheard")).endswith("Z, and a filter or region kept it from acme.choosy")
    await put(access, "acme.choosy", b'{"url": "https://a.example/", "events": []}')
    assert await why("never") == event_search.NEVER_PUBLISHED
    assert await search(access, "never", NAME) == EventSearch(waiting=[], why_none="", notes=[])
    monkeypatch.setattr(event_search, "SEARCHED_MAX", 1)
    monkeypatch.setattr(event_search, "PAGE_MESSAGES", 1)
    await send(access, NAME, "late")
    found = await search(access, "late")
    assert found.notes == ["more than 1 events wait for acme.billing; only those were searched"]
    assert await why("never") == "it is not among the newest 1 messages of the streams"
    monkeypatch.setattr(event_search, "RECEIVERS_MAX", 0)
    assert (await search(access, "late")).notes == ["2 receivers are too many to search their waiting events"]


async def test_an_event_that_waits_for_its_time_is_found(access: Access) -> None:
    """The time is shown as the full second in which it is due, as in all other places."""
    second = int(time.time()) + 3600
    subject = access.names.publish_event("acme", "order")

    async def publish() -> None:
        at = instant_text(second - 0.4)
        await access.js.publish(subject, b"{}", {"Angarium-Id": "later", "Angarium-Deliver-At": at})

    async def waits(tenant: str | None = "acme") -> bool:
        found = await search(access, "later", tenant=tenant)
        return found.timed and found.why_none == f"it waits for its time, {instant_text(second)}"

    await publish()
    await until_true(waits)
    assert await waits(tenant=None)
    done = await cancel_timed(access, "acme", "later")
    assert isinstance(done, CancelledEvents)
    cancelled = await search(access, "later")
    assert (cancelled.timed, cancelled.why_none) == (True, "it was cancelled before its time")
    second += 3 * 86_400
    await publish()
    await until_true(waits)


async def test_a_malformed_event_is_a_dead_letter_found_by_its_id_unless_that_was_not_read(
    access: Access,
) -> None:
    await put(access, NAME)
    many = {f"X-{number}": "1" for number in range(LINES_MAX)}
    for event, headers in (("bad", {"Content-Type": "\u00fc"}), ("many", many)):
        await access.js.publish(
            access.names.publish_event("acme", "order"), b"{}", {"Angarium-Id": event} | headers
        )

    async def buried() -> bool:
        return (await search(access, "none")).notes == [
            "it may be dead letter 2, which has too many headers, so that its id is not known"
        ]

    await until_true(buried)
    bad, many_headers = await search(access, "bad"), await search(access, "many")
    assert (bad.letter, bad.notes) == (1, [])
    assert bad.why_none == (
        "it is dead letter 1, for acme._events "
        "(malformed: Content-Type: at most 256 printable ASCII characters)"
    )
    assert (many_headers.letter, many_headers.why_none) == (None, event_search.NEVER_PUBLISHED)


@pytest.mark.parametrize(
    ("why_unrecorded", "what"),
    [
        ("", "it was discarded unread, or settled within the last 0 s"),
        (
            "the ledger is 27s behind",
            "it was settled, and it is not known how, since the ledger is 27s behind",
        ),
    ],
)
async def test_an_event_that_is_gone_was_discarded_only_if_its_end_would_be_recorded(
    access: Access, monkeypatch: pytest.MonkeyPatch, why_unrecorded: str, what: str
) -> None:
    monkeypatch.setattr(event_search, "RECEIVERS_MAX", 0)
    monkeypatch.setattr(event_search, "ON_ITS_WAY_S", 0.0)
    await put(access, NAME)
    await send(access, NAME, "e1")
    found = await search_event(access, "e1", "acme", why_unrecorded=lambda _: why_unrecorded)
    assert not isinstance(found, NotDone)
    assert found.why_none.endswith(f"Z, and no longer waits: {what}")


def test_an_event_may_have_an_unrecorded_end_while_the_ledger_lags_or_has_a_gap() -> None:
    gap = ("2026-11-24T10:00:00Z", "2026-11-24T12:00:00Z")
    before, after = (parse_time(f"2026-11-24T{hour}:30:00Z", 0.0) for hour in ("11", "12"))
    lag = LedgerLag(as_of="2026-11-24T13:00:00Z", behind_s=0.0, gaps=[gap])
    assert "the journal was purged too early" in lag.why_unrecorded(before)
    assert lag.why_unrecorded(after) == ""
    assert "behind" in replace(lag, behind_s=27.0).why_unrecorded(after)
    assert LedgerLag(as_of=None, behind_s=0.0, gaps=[]).why_unrecorded(after) == "the ledger is empty"


@pytest.mark.parametrize(
    "tenant", ["acme", "order", None], ids=["its tenant", "a tenant named like its type", "all"]
)
async def test_an_event_of_a_type_with_a_wildcard_belongs_to_no_receiver(
    access: Access, monkeypatch: pytest.MonkeyPatch, tenant: str | None
) -> None:
    """nats-server stores it without a partition, so a part of its type stands where tenants do."""
    monkeypatch.setattr(event_search, "ON_ITS_WAY_S", 0.0)
    await put(access, NAME)
    subject = access.names.publish_event("acme", "order.*")
    await access.js.publish(subject, b"{}", {"Angarium-Id": "stray"})
    found = await search(access, "stray", tenant=tenant)
    stray = f"it was published to {subject}: no receiver gets it, since no name contains * or >"
    assert found.why_none == (event_search.NEVER_PUBLISHED if tenant else stray)


async def test_an_event_that_was_erased_is_known_by_the_record_of_that(access: Access) -> None:
    """An event that was only waiting in the stream leaves no delivery in any ledger."""
    await put(access, NAME)
    erasures = Erasures(access.js, access.names)
    await send(access, NAME, "gone")
    await erasures.request("acme", "gone", "root@vm", 1.0)
    for tenant in ("acme", None):
        found = await search(access, "gone", tenant=tenant)
        (erased,) = found.erased
        assert erased == ErasedEvent(tenant="acme", at=erased.at, by="root@vm")
        assert found.waiting or found.why_none.startswith(
            "its erasure is under way" if erased.at is None else "it was erased"
        )

    async def done() -> bool:
        (erased,) = (await search(access, "gone")).erased
        return erased.at is not None

    await until_true(done)
    found = await search(access, "gone")
    assert (found.waiting, found.stored) == ([], False)
    assert found.why_none.startswith("it was erased at 2")
    assert (await search(access, "gone", NAME)).erased == found.erased
    assert erased_text("gone", found.erased[0]) == f"gone: erased {found.erased[0].at}, asked by root@vm"
    assert erased_text("gone", replace(found.erased[0], at=None)) == (
        "gone: its erasure, asked by root@vm, is under way"
    )
    await send(access, NAME, "gone")
    assert [each.place for each in (await search(access, "gone")).waiting] == [1]


async def test_an_event_that_was_never_there_is_unknown_after_its_erasure_too(access: Access) -> None:
    erasures = Erasures(access.js, access.names)
    await erasures.request("acme", "never", "root@vm", 1.0)

    async def done() -> bool:
        request = await erasures.get("acme", "never")
        return request is not None and request.done_at is not None

    await until_true(done)
    assert await search(access, "never") == EventSearch(
        waiting=[], why_none=event_search.NEVER_PUBLISHED, notes=[]
    )
    assert len((await search(access, "never", NAME)).erased) == 1


async def test_an_event_above_the_rate_of_its_tenant_waits_to_be_routed(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = "late.shop"
    await put(access, shop, PAUSED.replace(b"}", b', "events": ["order.*"]}'))
    for number in range(1, 5):
        subject = access.names.publish_event("late", "order.created")
        await access.js.publish(subject, b"{}", {"Angarium-Id": f"l{number}"})

    async def first() -> bool:
        return bool((await search(access, "l1", tenant="late")).waiting)

    await until_true(first)
    assert (await search(access, "l4", tenant="late")).why_none == "it was published a moment ago; ask again"
    monkeypatch.setattr(event_search, "ON_ITS_WAY_S", 0.0)

    async def parked() -> bool:
        return (await search(access, "l4", tenant="late")).why_none.startswith("it waits")

    await until_true(parked)
    for tenant in ("late", None):
        found = await search(access, "l4", tenant=tenant)
        assert (found.waiting, found.stored, found.unrouted) == ([], True, True)
        assert found.why_none.startswith(
            "it waits to be routed: 2 events of late come before it; the rate of late is"
        )

    async def noted() -> bool:
        """The tenant is parked when an event has waited for 2 s."""
        live = await inspect_with_unrouted(access, shop)
        screen = await Top(access, "late", 10).refresh()
        assert not isinstance(live, NotDone)
        assert not isinstance(screen, NotDone)
        sentence = live.get("unrouted", "")
        found = await installation_problems(access)
        assert isinstance(found, list)
        texts = [each.text for each in found if each.subject == "tenants"]
        return (
            sentence.startswith("3 events of late wait to be routed, the oldest for ")
            and [note.partition(",")[0] for note in screen.notes] == [sentence.partition(",")[0]]
            and [text.partition(",")[0] for text in texts] == [sentence.partition(",")[0]]
        )

    await until_true(noted)


async def test_a_copy_that_was_sent_again_waits_although_the_original_is_recorded(access: Access) -> None:
    await put(access, NAME)
    await publish(access.js, access.names, NAME, b"{}", {"Angarium-Id": "b1", "Angarium-Again": "dead-7"})
    (waits,) = (await search(access, "b1", NAME)).waiting
    assert (waits.place, waits.why, waits.again) == (1, "paused", "dead-7")
    assert f"stored {waits.stored_at}, sent again: paused; to continue" in place_text(waits)
    recorded = await search_event(access, "b1", "acme", {NAME: [None, "dead-7"]})
    assert isinstance(recorded, EventSearch)
    assert recorded.waiting == []


async def test_a_receiver_that_gets_nothing_says_why(access: Access) -> None:
    await put(access, NAME)
    await put(access, "acme.open", b'{"url": "https://a.example/"}')
    await send(access, NAME, "e1")
    await until_true(lambda: _waits(access))
    held = await held_receivers(access, [NAME, "acme.open", "acme.nobody"])
    assert held == {NAME: HeldReceiver("paused", "resume")}


async def _waits(access: Access) -> bool:
    return bool((await search(access, "e1")).waiting)


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

    monkeypatch.setattr(event_search, "inspect_receiver", answer)
    (waits,) = (await search(access, "e1")).waiting
    assert place_text(waits) == f"acme.billing: waits, stored {waits.stored_at}: {silent.text}"


BUCKET = {"effective_limit": 30.0, "per": "minute"}
HEALTH = ReceiverHealth(
    phase="active", waiting=9, oldest_at=None, failing_since=None, disabled=None, in_per_s=0.0, out_per_s=2.0,
    empty_in_s=None, limited_by="latency",
)  # fmt: skip
PACED = replace(HEALTH, limited_by="pace", in_per_s=0.05, out_per_s=0.2, empty_in_s=180.0)
"""One that gets 0.1 events a second, with 9 events that are gone in 180 s."""


@pytest.mark.parametrize(
    ("live", "health", "place", "expected"),
    [
        ({"phase": "active", "bucket": None}, HEALTH, 8, 4.0),
        ({"phase": "active", "bucket": None}, PACED, 8, 80.0),
        ({"phase": "active", "bucket": BUCKET}, PACED, 8, 80.0),
        ({"phase": "active", "bucket": None, "pace": {"effective_limit": 0.1}}, None, 8, 80.0),
        ({"phase": "active", "bucket": BUCKET}, HEALTH, 8, 4.0),
        ({"phase": "active", "bucket": BUCKET}, replace(HEALTH, limited_by="rate"), 8, 16.0),
        ({"phase": "active", "bucket": BUCKET}, None, 8, 16.0),
        ({"phase": "active", "bucket": BUCKET}, replace(HEALTH, limited_by=None, out_per_s=0.2), 8, 16.0),
        ({"phase": "active", "bucket": None}, replace(HEALTH, limited_by="unknown", out_per_s=0.2), 8, None),
        ({"phase": "active", "bucket": None}, replace(HEALTH, out_per_s=0.0), 8, None),
        ({"phase": "paused", "bucket": BUCKET, "resume_at": None}, HEALTH, 1, None),
        ({"phase": "backing_off", "bucket": None, "resume_at": "2026-01-31T12:00:09Z"}, HEALTH, 1, 9.0),
        ({"phase": "backing_off", "bucket": None, "resume_at": "2026-01-31T12:00:09Z"}, HEALTH, 2, None),
    ],
)
def test_the_turn_of_an_event_is_shown_if_the_throughput_is_known(
    live: dict[str, object], health: ReceiverHealth | None, place: int, expected: float | None
) -> None:
    assert due_s({"pace": None} | live, health, place, 1769860800.0) == expected
    waits = WaitingDelivery(
        receiver=NAME, stored_at="2026-01-31T12:00:00.000Z", place=place, waiting=9, why="it is",
        remedy=None, due_s=expected,
    )  # fmt: skip
    assert ("its turn comes in about" in place_text(waits)) == (expected is not None)
