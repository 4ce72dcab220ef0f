"""Lists of timed events: the next first, page by page, at the cost of what is on the page."""

import time
from typing import Any

import pytest

from streams.installation.topology import Names
from streams.nats.answers import Stored, StoredMessage
from streams.nats.jetstream import JetStream
from streams.timed import listing
from streams.timed.entries import entry_in
from streams.timed.listing import ListKey, list_entries
from tests.contract.support.routers import stored
from tests.contract.timed.publishing import DAY_S, A, stored_entry


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
    assert await listed(js, names, "acme", now) == ["overdue", "first", "second", "same", "far"]
    assert await listed(js, names, None, now) == ["overdue", "first", "second", "other", "same", "far"]
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


async def test_many_events_of_a_minute_are_listed_in_order_and_each_once(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seconds do not come in the order in which the entries were stored, and one has several pages."""
    monkeypatch.setattr(listing, "FEW_MAX", 4)
    minute = int(time.time()) // 60 * 60 + 120
    due = [minute + second for second in (50, 3, 3, 10, 3, 50, 3, 3, 59, 3)] + [minute + 60, minute + DAY_S]
    for number, second in enumerate(due, 1):
        await stored_entry(js, names, second, "acme", f"e{number}", number)
    expected = [
        f"e{number}" for _, number in sorted((second, number) for number, second in enumerate(due, 1))
    ]
    for limit in (1, 2, 5, 100):
        ids, after = list[str](), None
        while True:
            page = await list_entries(js, names, "acme", minute - 120, limit=limit, after=after)
            ids += [each.id for each in page.entries]
            if (after := page.next) is None:
                break
        assert ids == expected


async def page_cost(js: JetStream, names: Names, now: int, after: ListKey | None = None) -> int:
    """The requests for a page of three, and the subjects that were listed for it."""
    cost = 0

    class Counted:
        async def next_message(self, *args: Any) -> StoredMessage | None:
            nonlocal cost
            cost += 1
            return await js.next_message(*args)

        async def last_message(self, *args: Any) -> StoredMessage | None:
            nonlocal cost
            cost += 1
            return await js.last_message(*args)

        async def subjects(self, *args: Any) -> dict[str, int]:
            nonlocal cost
            found = await js.subjects(*args)
            cost += len(found)
            return found

    counted: Any = Counted()
    page = await list_entries(counted, names, "acme", now, limit=3, after=after)
    assert len(page.entries) == 3
    return cost


async def test_a_page_costs_the_same_if_more_events_wait(js: JetStream, names: Names) -> None:
    """All are due in one second."""
    now = int(time.time())
    second, costs = now + 300, list[tuple[int, int]]()
    for number in range(1, 401):
        await stored_entry(js, names, second, "acme", f"e{number}", number)
        if number in (100, 400):
            costs.append((
                await page_cost(js, names, now),
                await page_cost(js, names, now, ListKey(second, 50)),
            ))  # fmt: skip
    assert costs[0] == costs[1]
