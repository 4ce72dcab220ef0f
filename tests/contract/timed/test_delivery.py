"""Timed events: stored by the router, published when due, and routed once."""

import asyncio
import time
from datetime import datetime

import pytest

from actors.ids import stable_hash
from actors.times_as_text import instant_text
from streams.installation.timed_subjects import EntryAddress
from streams.installation.topology import Names
from streams.journal.routing_progress import NOTHING_ROUTED
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.routing import lanes
from streams.timed import due_publisher
from streams.timed.entries import due_second
from tests.contract.support.faults import ack_lost, after, refused
from tests.contract.support.routers import (
    PARTITION,
    TENANT,
    OpenOwner,
    accepted,
    announce,
    copies,
    has_stored,
    settled,
    stored,
    subscribe,
)
from tests.contract.timed.publishing import FAR_S, NEIGHBOUR, STUB_TTL, A, B, at, entries
from tests.support.waiting import until, until_true

FLOOD = 60


async def test_an_event_is_delivered_when_its_time_has_come(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await subscribe(js, names, A)
    await open_owner()
    due_at = time.time() + 1.0
    headers = {"Angarium-Deliver-At": instant_text(due_at), "Angarium-Id": "one", "Content-Type": "text/x"}
    await announce(js, names, b"later", "order.paid", headers=headers)
    await announce(js, names, b"now")
    await has_stored(js, names, A, [b"now", b"later"])
    copy = (await copies(js, names, A))[1]
    assert copy.stored_at >= due_at
    assert copy.headers.pop("Angarium-Published")
    assert copy.headers == {
        "Angarium-Id": "one", "Angarium-Type": "order.paid", "Angarium-Source": "3", "Content-Type": "text/x",
    }  # fmt: skip
    (stub,) = await entries(js, names)
    assert (stub.headers["Angarium-Taken"], stub.data) == ("3", b"")
    assert stub.headers["Nats-TTL"] == STUB_TTL
    await settled(js, names, 3)


async def test_an_event_that_waits_holds_nothing_up(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await subscribe(js, names, A)
    owner = await open_owner()
    await announce(js, names, b"later", headers=at(FAR_S))
    await settled(js, names, 1)
    (entry,) = await entries(js, names)
    assert entry.data == b"later"
    assert names.timed_subjects.address(entry.subject).partition == PARTITION
    assert owner.totals.events == 0
    assert await stored(js, names, A) == []


async def test_a_time_that_is_over_means_at_once(js: JetStream, names: Names, open_owner: OpenOwner) -> None:
    await subscribe(js, names, A)
    await open_owner()
    await announce(js, names, b"late", headers=at(-5))
    await has_stored(js, names, A, [b"late"])
    assert await entries(js, names) == []


async def test_an_event_with_a_time_may_be_for_one_receiver(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await subscribe(js, names, A)
    await subscribe(js, names, B, "nothing")
    await open_owner()
    await announce(js, names, b"due", headers=at(0.2, **{"Angarium-To": "b"}))
    await announce(js, names, b"over", headers=at(-1, **{"Angarium-To": "b"}))
    await has_stored(js, names, B, [b"over", b"due"])
    assert await stored(js, names, A) == []


async def test_an_event_keeps_its_region_while_it_waits(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """A receiver of another region subscribes to it, and gets no copy."""
    await subscribe(js, names, A)
    await subscribe(js, names, B, region=["us"])
    owner = await open_owner()
    await announce(js, names, b"due", headers=at(0.2, **{"Angarium-Region": "eu"}))
    await has_stored(js, names, A, [b"due"])
    await settled(js, names, 2)
    assert [each.headers.get("Angarium-Region") for each in await copies(js, names, A)] == ["eu"]
    assert await stored(js, names, B) == []
    assert owner.totals.selections.outside_region == 1


async def test_an_entry_whose_acknowledgement_was_lost_is_stored_once(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """The router repeats the entry, which it finds stored, and routes what comes after it."""
    await subscribe(js, names, A)
    owner, headers = await open_owner(), at(FAR_S, **{"Angarium-Id": "x"})
    second = due_second(datetime.fromisoformat(headers["Angarium-Deliver-At"]).timestamp())
    subject = names.timed_subjects.entry(EntryAddress(PARTITION, second, TENANT, stable_hash("x"), 1))
    owner.js.faults[subject].append(ack_lost)
    await announce(js, names, b"later", headers=headers)
    await settled(js, names, 1)
    (entry,) = await entries(js, names)
    assert len(owner.js.published[subject]) == 2
    assert (entry.subject, entry.position) == (subject, 1)
    assert (await js.existing_stream(names.later)).last == 1


async def test_an_entry_that_an_owner_before_has_stored_is_stored_once(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """The next owner knows nothing of the entry, and stores it again; the event comes once."""
    await subscribe(js, names, A)
    owner = await open_owner()
    await announce(js, names, b"later", headers=at(FAR_S, **{"Angarium-Id": "x"}))
    await settled(js, names, 1)
    (entry,) = await entries(js, names)
    owner.record.routing = NOTHING_ROUTED
    await owner.own_again()
    await until(lambda: len(owner.js.published[entry.subject]) == 2)
    await settled(js, names, 1)
    assert [each.position for each in await entries(js, names)] == [entry.position]


async def test_a_due_event_that_is_published_twice_is_routed_once(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """The second one comes from a due publisher that did not know of the first, however late."""
    await subscribe(js, names, A)
    owner = await open_owner()
    await announce(js, names, b"due", headers=at(1.5))
    await has_stored(js, names, A, [b"due"])
    ((body, headers),) = owner.js.published[names.publish_event(TENANT, "a")]
    await announce(js, names, body, headers=headers)
    await announce(js, names, b"next")
    await has_stored(js, names, A, [b"due", b"next"])
    await settled(js, names, 4)
    assert owner.totals.events == 2


async def test_a_due_event_whose_acknowledgement_was_lost_is_routed(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """The event is published once more before the first one is taken, and comes once."""
    await subscribe(js, names, A)
    owner, subject, may_take = await open_owner(), names.publish_event(TENANT, "a"), asyncio.Event()
    owner.js.faults[subject].append(ack_lost)
    await announce(js, names, b"due", headers=at(1.0))
    await settled(js, names, 1)
    (entry,) = await entries(js, names)
    owner.js.faults[entry.subject].append(after(may_take.wait))
    await until(lambda: len(owner.js.published[subject]) == 2)
    may_take.set()
    await settled(js, names, 3)
    assert await stored(js, names, A) == [b"due"]
    assert owner.totals.events == 1


async def test_a_router_that_died_after_it_took_an_event_leaves_it_to_the_next(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """The stub names the due event, so the next router knows that this one counts."""
    await subscribe(js, names, A)
    owner = await open_owner()
    owner.js.faults[names.publish_to(A)].append(after(asyncio.Event().wait))
    await announce(js, names, b"due", headers=at(0.2))
    await until(lambda: owner.published(A) == [b"due"])
    assert await stored(js, names, A) == []
    await owner.own_again()
    await has_stored(js, names, A, [b"due"])
    assert await accepted(js, names, A) == [b"due"]


async def test_another_router_publishes_what_became_due_meanwhile(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await subscribe(js, names, A)
    owner = await open_owner()
    await announce(js, names, b"due", headers=at(0.5))
    await settled(js, names, 1)
    await owner.router.stop()
    address = names.timed_subjects.address((await entries(js, names))[0].subject)
    await until(lambda: time.time() > address.second)
    await owner.own_again()
    await has_stored(js, names, A, [b"due"])


async def test_others_do_not_wait_while_an_event_is_taken(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """The tenant of the event does, so that the order of its copies is that of their sources."""
    await subscribe(js, names, A)
    await subscribe(js, names, f"{NEIGHBOUR}.n")
    owner, may_take = await open_owner(), asyncio.Event()
    await announce(js, names, b"due", headers=at(0.2))
    await settled(js, names, 1)
    (entry,) = await entries(js, names)
    owner.js.faults[entry.subject] += [refused(10077), after(may_take.wait)]
    await until(lambda: len(owner.js.published[entry.subject]) == 2)
    await announce(js, names, b"next")
    await announce(js, names, b"of a neighbour", tenant=NEIGHBOUR)
    await has_stored(js, names, f"{NEIGHBOUR}.n", [b"of a neighbour"])
    assert await stored(js, names, A) == []
    may_take.set()
    await has_stored(js, names, A, [b"due", b"next"])


async def test_copies_do_not_wait_while_nats_takes_no_entry(
    js: JetStream, names: Names, open_owner: OpenOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lanes have one sender, and the node one slot, and the entry is not answered."""
    monkeypatch.setattr(lanes, "SENDERS_MAX", 1)
    await subscribe(js, names, f"{NEIGHBOUR}.n")
    owner, headers, is_answered = await open_owner(copy_slots=1), at(FAR_S), asyncio.Event()
    second = due_second(datetime.fromisoformat(headers["Angarium-Deliver-At"]).timestamp())
    address = EntryAddress(PARTITION, second, TENANT, stable_hash("x"), 1)
    subject = names.timed_subjects.entry(address)
    owner.js.faults[subject].append(after(is_answered.wait))
    await announce(js, names, b"timed", headers={**headers, "Angarium-Id": "x"})
    await until(lambda: len(owner.js.published[subject]) == 1)
    await announce(js, names, b"of a neighbour", tenant=NEIGHBOUR)
    await has_stored(js, names, f"{NEIGHBOUR}.n", [b"of a neighbour"])
    assert await entries(js, names) == []
    is_answered.set()
    await settled(js, names, 2)
    assert len(await entries(js, names)) == 1


async def test_an_event_that_is_too_large_to_wait_becomes_a_dead_letter(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await subscribe(js, names, A)
    owner = await open_owner()
    info = await js.existing_stream(names.later)
    body = b"x" * (info.config["max_msg_size"] - 100)
    owner.js.faults[names.dead(f"{TENANT}._events")].append(refused(10077))
    await announce(js, names, body, headers=at(FAR_S))
    await settled(js, names, 1)
    (letter,) = (await js.read(names.dead_letters, names.dead(f"{TENANT}._events"), 1)).messages
    assert letter.headers["Angarium-Problem"] == "the event is too large to wait for its time"
    assert (owner.totals.events, owner.totals.malformed) == (1, 1)


async def test_a_foreign_message_among_the_entries_is_left_alone(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await subscribe(js, names, A)
    await open_owner()
    await announce(js, names, b"due", headers=at(0.3))
    await settled(js, names, 1)
    (entry,) = await entries(js, names)
    address = names.timed_subjects.address(entry.subject)
    second = names.timed_subjects.due_in(address.partition, address.second, 1)
    foreign = second.replace("*", TENANT, 1).replace("*", "x", 1).replace("*", "y", 1)
    assert isinstance(await js.publish(foreign, b"foreign"), Stored)
    await has_stored(js, names, A, [b"due"])


async def test_a_flood_that_is_due_does_not_hold_up_another_tenant(
    js: JetStream, names: Names, open_owner: OpenOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have events in one second, and those of the flood come first in the stream."""
    monkeypatch.setattr(due_publisher, "SPLIT_AFTER", 4)
    monkeypatch.setattr(due_publisher, "TURN_MAX", 2)
    await subscribe(js, names, A)
    await subscribe(js, names, f"{NEIGHBOUR}.b")
    owner = await open_owner()
    headers = at(1.0)
    for number in range(FLOOD):
        await announce(js, names, b"%d" % number, headers=headers)
    await announce(js, names, b"other", tenant=NEIGHBOUR, headers=headers)
    await has_stored(js, names, f"{NEIGHBOUR}.b", [b"other"])
    events = (await js.read(names.events, names.events_for(NEIGHBOUR), 1)).messages
    before = (await js.read(names.events, names.events_for(TENANT), 1, 1000)).messages
    due_before = [each for each in before if "Angarium-Due" in each.headers]
    assert sum(each.position < events[-1].position for each in due_before) < FLOOD / 2
    await has_stored(js, names, A, [b"%d" % number for number in range(FLOOD)])
    assert owner.broken == []


async def test_an_entry_that_was_under_way_for_a_week_is_void(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """The stub of its event may be gone by then; the event was delivered or cancelled."""
    await subscribe(js, names, A)
    second = int(time.time()) - 5
    address = EntryAddress(PARTITION, second, TENANT, stable_hash("x"), 1)
    headers = {
        "Angarium-Id": "x", "Angarium-Type": "a", "Angarium-Published": f"{second - 8 * 86_400}.000",
        "Angarium-Deliver-At": instant_text(second),
    }  # fmt: skip
    assert isinstance(await js.publish(names.timed_subjects.entry(address), b"{}", headers), Stored)
    await announce(js, names, b"{}", headers={"Angarium-Due": f"{second}.1", "Angarium-Id": "x"})
    await open_owner()
    await settled(js, names, 1)
    await until_true(lambda: _has_none(js, names))
    assert await stored(js, names, A) == []


async def _has_none(js: JetStream, names: Names) -> bool:
    return not await entries(js, names)


async def test_a_clock_that_is_set_back_makes_no_event_early(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """The first event comes while the clock is 30 s fast; the second is due in a second that was opened."""
    await subscribe(js, names, A)
    fast_s = 30.0
    await open_owner(wall=lambda: time.time() + fast_s)
    await announce(js, names, b"first", headers=at(20.0))
    await has_stored(js, names, A, [b"first"])
    fast_s = 0.0
    await announce(js, names, b"second", headers=at(3.0))
    due_at = time.time() + 2.0
    await has_stored(js, names, A, [b"first", b"second"])
    assert time.time() >= due_at
