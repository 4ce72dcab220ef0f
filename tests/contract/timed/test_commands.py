"""Timed events are listed and cancelled among many stubs, and among many events of one id."""

import time

import pytest

from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.cli.ledger_queries.event import due_text
from angarium.operations.events import cancel_timed as cancelling
from angarium.operations.events.cancel_timed import CancelledEvents, cancel_timed
from angarium.operations.events.list_timed import TimedPage, list_timed, list_timed_up_to
from angarium.operations.events.timed_traces import DueEvent, timed_traces
from angarium.operations.failures import NotDone
from angarium.settings import Settings
from streams.installation.topology import Names
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.timed import listing
from streams.timed.entries import CancelResult, Entry, cancel
from tests.contract.timed.publishing import stored_entry

STUBS = 7


@pytest.fixture
def access(js: JetStream, names: Names) -> Access:
    return Access(js, Settings(prefix=names.prefix))


async def due_event(access: Access, second: int) -> int:
    """Store an entry, publish its due event, and take it; returns the position of the due event."""
    js, names = access.js, access.names
    await stored_entry(js, names, second, "acme", "due", 1)
    due = {"Angarium-Id": "due", "Angarium-Due": f"{second}.1"}
    answer = await js.publish(names.publish_event("acme", "a"), b"{}", due)
    assert isinstance(answer, Stored)
    entry = await js.last_message(names.later, names.timed_subjects.tenant_entries("acme"))
    assert entry is not None
    assert isinstance(await js.publish(entry.subject, b"", {"Angarium-Taken": str(answer.position)}), Stored)
    return answer.position


async def cancelled_of(access: Access, event: str) -> CancelledEvents:
    done = await cancel_timed(access, "acme", event)
    assert isinstance(done, CancelledEvents), done
    return done


async def test_listing_continues_after_a_page_of_stubs(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event waits behind more cancelled ones than are read for a page."""
    monkeypatch.setattr(listing, "READ_MAX", 3)
    second = int(time.time()) + 300
    for number in range(1, STUBS + 1):
        await stored_entry(access.js, access.names, second, "acme", f"e{number}", number)
        await cancelled_of(access, f"e{number}")
    await stored_entry(access.js, access.names, second + 1, "acme", "waits", STUBS + 1)
    for limit in (1, 2, None):
        found = await list_timed_up_to(access, "acme", limit=limit)
        assert isinstance(found, TimedPage)
        assert ([each.id for each in found.events], found.next) == (["waits"], None)
    first = await list_timed(access, "acme", limit=1)
    assert isinstance(first, TimedPage)
    assert first.events == []
    assert first.next is not None


async def test_a_full_page_has_a_next_one_only_if_another_event_waits(access: Access) -> None:
    second = int(time.time()) + 300
    for number, event in enumerate(("one", "gone"), 1):
        await stored_entry(access.js, access.names, second + number, "acme", event, number)
    two = await list_timed(access, "acme", limit=1)
    await cancelled_of(access, "gone")
    one = await list_timed(access, "acme", limit=1)
    assert isinstance(two, TimedPage)
    assert isinstance(one, TimedPage)
    assert ([each.id for each in one.events], two.next is None, one.next) == (["one"], False, None)


async def test_many_events_of_one_id_are_cancelled_part_by_part(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that cancels as many as it may says so, and the next one goes on."""
    monkeypatch.setattr(cancelling, "CANCELLED_MAX", 2)
    second = int(time.time()) + 300
    for number in range(1, 4):
        await stored_entry(access.js, access.names, second + number, "acme", "same", number)
    refused = await cancel_timed(access, "acme", "same")
    assert isinstance(refused, NotDone)
    assert refused.sentence == "2 events same of acme were cancelled, and more wait; cancel it once more"
    rest, again = await cancelled_of(access, "same"), await cancelled_of(access, "same")
    assert (len(rest.cancelled), rest.before, rest.too_late) == (1, 2, 0)
    assert (len(again.cancelled), again.before, again.too_late) == (0, 3, 0)


async def test_a_stub_that_was_stored_while_others_were_cancelled_counts_once(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event is taken between its reading and its cancelling: it is too late, and is not met again."""
    second = int(time.time()) + 300
    for number in (1, 2):
        await stored_entry(access.js, access.names, second, "acme", "same", number)

    async def taken_before(js: JetStream, names: Names, entry: Entry, by: str, age_s: float) -> CancelResult:
        if entry.address.source == 1:
            taken = {"Angarium-Taken": "9"}
            assert isinstance(await js.publish(entry.message.subject, b"", taken), Stored)
        return await cancel(js, names, entry, by, age_s)

    monkeypatch.setattr(cancelling, "cancel", taken_before)
    done = await cancelled_of(access, "same")
    assert (len(done.cancelled), done.before, done.too_late) == (1, 0, 1)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_due_event_is_shown_with_how_late_it_was(access: Access, is_kept: bool) -> None:
    """If the events keep it no longer, the stub says when it was taken."""
    second, notes = int(time.time()) - 30, list[str]()
    position = await due_event(access, second)
    message = await access.js.message(access.names.events, position)
    assert message is not None
    if not is_kept:
        assert await access.js.delete(access.names.events, position)
    traces = await timed_traces(access, "due", "acme", notes)
    stub = await access.js.last_message(access.names.later, f"{access.names.prefix}.later.>")
    (due,) = traces.due
    assert stub is not None
    accepted_at = message.stored_at if is_kept else stub.stored_at
    assert due == DueEvent(
        tenant="acme", due_at=instant_text(second), accepted_at=instant_text(accepted_at),
        late_s=round(accepted_at - second, 3),
    )  # fmt: skip
    assert due.late_s >= 30
    said = f"due: was due {due.due_at}, accepted {due.accepted_at}, {due.late_s:.1f} s late"
    assert due_text("due", due) == said
    assert (traces.why_none, notes) == ("", [])


async def test_a_message_that_took_the_place_of_a_due_event_says_nothing_of_it(access: Access) -> None:
    """The events have lost their end, and have grown again."""
    second = int(time.time()) - 30
    position = await due_event(access, second)
    other = await access.js.publish(access.names.publish_event("acme", "a"), b"{}")
    entry = await access.js.last_message(access.names.later, f"{access.names.prefix}.later.>")
    assert isinstance(other, Stored)
    assert entry is not None
    stub = await access.js.publish(entry.subject, b"", {"Angarium-Taken": str(other.position)})
    assert isinstance(stub, Stored)
    assert other.position > position
    (due,) = (await timed_traces(access, "due", "acme", [])).due
    stored = await access.js.message(access.names.later, stub.position)
    assert stored is not None
    assert due.accepted_at == instant_text(stored.stored_at)


async def test_an_event_with_very_many_traces_is_searched_up_to_a_bound(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.operations.events.timed_traces.TRACES_MAX", 2)
    notes = list[str]()
    for number in range(1, 4):
        await stored_entry(access.js, access.names, int(time.time()) + 300, "acme", "same", number)
    traces = await timed_traces(access, "same", "acme", notes)
    assert traces.why_none.startswith("it waits for its time, ")
    assert notes == ["it had a time more than 2 times; only those were searched"]
