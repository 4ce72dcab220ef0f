"""Timed events are cancelled and erased; a due event of one that is gone is dropped."""

from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.timed.entries import CancelledStub, CancelResult, Entry, cancel, entry_in, erase, events_age_s
from streams.timed.listing import entries_of_event, traces_of_event
from tests.contract.support.routers import (
    TENANT,
    OpenOwner,
    announce,
    has_stored,
    settled,
    subscribe,
)
from tests.contract.timed.publishing import FAR_S, STUB_TTL, A, at, entries


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
    assert await cancel(js, names, entry, "ada@desk", age_s) is CancelResult.DONE
    assert await cancel(js, names, entry, "ada@desk", age_s) is CancelResult.DONE
    (stub,) = await entries(js, names)
    assert (stub.headers["Angarium-Cancelled"], stub.data) == ("ada@desk", b"")
    assert stub.headers["Nats-TTL"] == STUB_TTL
    due = {"Angarium-Due": f"{entry.address.second}.{entry.address.source}", "Angarium-Id": "x"}
    await announce(js, names, b"later", headers=due)
    await announce(js, names, b"next")
    await has_stored(js, names, A, [b"next"])
    assert owner.totals.events == 1
    assert [each async for each in entries_of_event(js, names, TENANT, "x")] == []
    traces = [each.what async for each in traces_of_event(js, names, TENANT, "x")]
    assert traces == [CancelledStub("ada@desk")]


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
    assert await cancel(js, names, entry, "ada@desk", age_s) is CancelResult.TOO_LATE


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
    assert stub.headers["Nats-TTL"] == STUB_TTL
    assert await js.message(names.later, entry.position) is None
