"""A producer says that an event is due: a dead letter, whatever entry it names, and the entry stays."""

import asyncio

import pytest

from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.routing import tenants
from tests.contract.support.faults import after
from tests.contract.support.routers import TENANT, OpenOwner, announce, has_stored, settled, stored, subscribe
from tests.contract.timed.publishing import FAR_S, A, B, at, entries
from tests.support.waiting import until

SOON_S = 600.0
WAITING = {"Angarium-Id": "x", "Angarium-Region": "eu", "Angarium-To": "b", "Content-Type": "text/x"}


async def letters(js: JetStream, names: Names) -> list[StoredMessage]:
    """The dead letters of the tenant's malformed fan-outs."""
    return (await js.read(names.dead_letters, names.dead(f"{TENANT}._events"), 1)).messages


async def announce_forged(
    js: JetStream, names: Names, wait_s: float, event_type: str = "a", **other: str
) -> None:
    """Store a timed event, and publish its due event with other headers."""
    await announce(js, names, b"later", headers=at(wait_s, **WAITING))
    await settled(js, names, 1)
    address = names.timed_subjects.address((await entries(js, names))[0].subject)
    due = {"Angarium-Due": f"{address.second}.{address.source}", **WAITING, **other}
    await announce(js, names, b"later", event_type, headers={name: due[name] for name in due if due[name]})


async def test_a_forged_due_event_cannot_change_the_content_of_a_timed_one(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await subscribe(js, names, A)
    await open_owner()
    await announce(js, names, b"later", headers=at(SOON_S, **{"Angarium-Id": "x"}))
    await settled(js, names, 1)
    address = names.timed_subjects.address((await entries(js, names))[0].subject)
    forged = {"Angarium-Due": f"{address.second}.{address.source}", "Angarium-Id": "x"}
    await announce(js, names, b"other", headers=forged)
    await announce(js, names, b"next")
    await has_stored(js, names, A, [b"next"])
    assert [each.data for each in await letters(js, names)] == [b"other"]
    assert [each.data for each in await entries(js, names)] == [b"later"]


@pytest.mark.parametrize(
    ("event_type", "other"),
    [
        ("b", {}), ("a", {"Angarium-Region": ""}), ("a", {"Angarium-Region": "us"}),
        ("a", {"Angarium-To": ""}), ("a", {"Angarium-To": "a"}), ("a", {"Content-Type": ""}),
    ],
)  # fmt: skip
async def test_a_forged_due_event_cannot_change_the_headers_of_a_timed_one(
    js: JetStream, names: Names, open_owner: OpenOwner, event_type: str, other: dict[str, str]
) -> None:
    await subscribe(js, names, A)
    await subscribe(js, names, B)
    owner = await open_owner()
    await announce_forged(js, names, SOON_S, event_type, **other)
    await settled(js, names, 2)
    (letter,) = await letters(js, names)
    assert letter.headers["Angarium-Problem"] == "Angarium-Due: set by Angarium only; leave it out"
    assert owner.totals.malformed == 1
    assert [each.data for each in await entries(js, names)] == [b"later"]
    assert await stored(js, names, A) == await stored(js, names, B) == []


async def test_a_forged_due_event_cannot_bring_a_timed_one_forward(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """The forged event has all the headers of the entry, and comes hours before its time."""
    await subscribe(js, names, B)
    await open_owner()
    await announce_forged(js, names, 2 * FAR_S)
    await settled(js, names, 2)
    assert len(await letters(js, names)) == 1
    assert [each.data for each in await entries(js, names)] == [b"later"]
    assert await stored(js, names, B) == []


async def test_a_due_event_that_names_nothing_becomes_a_dead_letter(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await subscribe(js, names, A)
    await open_owner()
    await announce(js, names, b"none", headers={"Angarium-Due": "5.5"})
    await announce(js, names, b"next")
    await has_stored(js, names, A, [b"next"])
    await settled(js, names, 2)
    assert [each.data for each in await letters(js, names)] == [b"none"]


async def test_a_forged_due_event_that_is_evicted_is_malformed(
    js: JetStream, names: Names, open_owner: OpenOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forged event has one letter, that of a malformed fan-out, and none for a subscriber."""
    monkeypatch.setattr(tenants, "EVENTS_MAX", 2)
    await subscribe(js, names, A)
    owner = await open_owner()
    owner.js.faults[names.publish_to(A)].append(after(asyncio.Event().wait))
    for number in range(9):
        await announce(js, names, b"%d" % number)
    await announce(js, names, b"forged", headers={"Angarium-Due": "5.5"})
    await until(lambda: bool(owner.record.routing.parked_tenants))
    owner.router.evict_unrouted(TENANT, 11)
    await until(lambda: owner.totals.evicted >= 8)
    found = (await js.read(names.dead_letters, names.dead(f"{TENANT}.*"), 1, 100)).messages
    of_forged = [each.headers["Angarium-Reason"] for each in found if each.data == b"forged"]
    assert (of_forged, [each.data for each in await letters(js, names)]) == (["malformed"], [b"forged"])
    assert owner.totals.malformed == 1
