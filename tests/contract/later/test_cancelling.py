"""Waiting events are listed, cancelled and erased; a due event of one that is gone is dropped."""

import time

import pytest

from actors.ids import stable_hash
from streams.installation.topology import Names
from streams.later.entries import Cancelled, Cancelling, Entry, cancel, entry_in, erase, events_age_s
from streams.later.listing import entries_of_event, list_entries, traces_of_event
from streams.nats.answers import Stored, StoredMessage
from streams.nats.jetstream import JetStream
from tests.contract.later.timed import FAR_S, A, at, entries
from tests.contract.support.routers import (
    TENANT,
    OpenOwner,
    announce,
    has_stored,
    settled,
    stored,
    subscribe,
)

DAY_S = 86_400


async def only_entry(js: JetStream, names: Names) -> Entry:
    (message,) = await entries(js, names)
    entry = entry_in(names, message)
    assert isinstance(entry, Entry)
    return entry


async def test_a_cancelled_event_is_not_delivered(js: JetStream, names: Names, open_owner: OpenOwner) -> None:
    """A due event of it, which was published before, is dropped."""
    await subscribe(js, names, A)
    owner = await open_owner()
    await announce(js, names, b"later", headers=at(FAR_S, **{"Angarium-Id": "x"}))
    await settled(js, names, 1)
    entry = await only_entry(js, names)
    age_s = await events_age_s(js, names)
    assert await cancel(js, names, entry, "ada@desk", age_s) is Cancelling.DONE
    assert await cancel(js, names, entry, "ada@desk", age_s) is Cancelling.DONE
    (stub,) = await entries(js, names)
    assert (stub.headers["Angarium-Cancelled"], stub.data) == ("ada@desk", b"")
    due = {"Angarium-Due": f"{entry.place.second}.{entry.place.source}", "Angarium-Id": "x"}
    await announce(js, names, b"later", headers=due)
    await announce(js, names, b"next")
    await has_stored(js, names, A, [b"next"])
    assert owner.totals.events == 1
    assert await entries_of_event(js, names, TENANT, "x") == []
    assert await traces_of_event(js, names, TENANT, "x") == [Cancelled("ada@desk")]


async def test_an_event_that_was_taken_can_no_longer_be_cancelled(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """The canceller saw the entry before it was taken."""
    await subscribe(js, names, A)
    await open_owner()
    await announce(js, names, b"due", headers=at(0.5))
    await settled(js, names, 1)
    entry = await only_entry(js, names)
    await has_stored(js, names, A, [b"due"])
    age_s = await events_age_s(js, names)
    assert await cancel(js, names, entry, "ada@desk", age_s) is Cancelling.TOO_LATE


async def test_an_erased_event_leaves_a_stub_without_its_content(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await open_owner()
    await announce(js, names, b"secret", headers=at(FAR_S, **{"Angarium-Id": "x"}))
    await settled(js, names, 1)
    entry = await only_entry(js, names)
    age_s = await events_age_s(js, names)
    assert await erase(js, names, entry, age_s)
    assert not await erase(js, names, entry, age_s)
    (stub,) = await entries(js, names)
    assert (stub.headers["Angarium-Cancelled"], stub.data) == ("erased", b"")
    assert await js.message(names.later, entry.position) is None


async def stored_entry(
    js: JetStream, names: Names, second: int, tenant: str, event: str, source: int, **more: str
) -> None:
    """Store an entry, as a router does."""
    when = f"{second // DAY_S}.{second // 3600 % 24}.{second // 60 % 60}.{second % 60}"
    subject = f"{names.prefix}.later.0.{when}.{tenant}.{stable_hash(event)}.{source}"
    headers = {
        "Angarium-Id": event, "Angarium-Type": "a", "Angarium-Published": "1.000",
        "Angarium-Deliver-At": "2026-12-24T18:00:00Z",
    }  # fmt: skip
    assert isinstance(await js.publish(subject, b"{}", headers | more), Stored)


async def listed(js: JetStream, names: Names, tenant: str | None, now: int, **more: object) -> list[str]:
    found = await list_entries(js, names, tenant, now, **more)  # type: ignore[arg-type]
    return [each.id for each in found.entries]


async def test_a_list_begins_with_the_event_that_is_due_next(js: JetStream, names: Names) -> None:
    now = int(time.time())
    await stored_entry(js, names, now + 20 * DAY_S, "acme", "far", 1)
    await stored_entry(js, names, now + 61, "acme", "second", 3)
    await stored_entry(js, names, now + 61, "umbra", "other", 4)
    await stored_entry(js, names, now + 60, "acme", "first", 5, **{"Angarium-To": "billing"})
    await stored_entry(js, names, now - 60, "acme", "overdue", 6)
    await stored_entry(js, names, now + 61, "acme", "same", 2)
    assert await listed(js, names, "acme", now) == ["overdue", "first", "same", "second", "far"]
    assert await listed(js, names, None, now) == ["overdue", "first", "same", "second", "other", "far"]
    assert await listed(js, names, "acme", now, only_for="billing") == ["first"]


async def test_a_list_continues_after_the_last_event_of_a_page(js: JetStream, names: Names) -> None:
    now = int(time.time())
    for number in range(1, 6):
        await stored_entry(js, names, now + 60 + number // 2, "acme", f"e{number}", number)
    pages, after = list[list[str]](), None
    for _ in range(3):
        page = await list_entries(js, names, "acme", now, limit=2, after=after)
        pages.append([each.id for each in page.entries])
        after = page.next
    assert (pages, after) == ([["e1", "e2"], ["e3", "e4"], ["e5"]], None)


@pytest.mark.parametrize("headers", [{}, {"Angarium-Taken": "x"}, {"Angarium-Published": "x"}])
async def test_a_message_that_is_not_an_entry_is_left_out(
    js: JetStream, names: Names, headers: dict[str, str]
) -> None:
    now = int(time.time())
    subject = f"{names.prefix}.later.0.{now // DAY_S + 1}.1.1.1.acme.x.1"
    assert isinstance(await js.publish(subject, b"{}", headers), Stored)
    assert isinstance(await js.publish(f"{names.prefix}.later.a.b.c.d.e.f.g.h", b"{}"), Stored)
    found = await list_entries(js, names, None, now)
    assert (found.entries, found.next) == ([], None)
    message = await js.last_message(names.later, subject)
    assert isinstance(message, StoredMessage)
    assert entry_in(names, message) is None
    assert await stored(js, names, A) == []
