"""Published events that cannot be sent: each becomes a dead letter, and delays no other event."""

import asyncio

import pytest

from actors.ids import event_id
from actors.machine.facts import Burial
from streams.dead_letters.bury import DeadLetterWriter
from streams.dead_letters.malformed import bury_malformed
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.routing.fanout import published_event
from tests.contract.support.faults import Fault, FaultyJetStream, ack_lost, after, refused, request_lost
from tests.contract.support.routers import (
    PARTITION,
    OpenOwner,
    Owner,
    announce,
    announce_many,
    has_stored,
    settled,
    stored,
    subscribe,
)
from tests.support.installation import SHARDS, install, publish
from tests.support.waiting import until

A = "acme.a"
NO_NAME = "acme._events"
STORE_FULL = 10077


async def letters(js: JetStream, names: Names, receiver: str = NO_NAME) -> list[StoredMessage]:
    return (await js.read(names.dead_letters, names.dead(receiver), 1)).messages


async def test_a_malformed_event_becomes_a_dead_letter_of_its_tenant(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await subscribe(js, names, A)
    owner = await open_owner()
    headers = {
        "Nats-Msg-Id": "x 1", "Content-Type": "text/plain", "X-Own": "kept", "Angarium-Reason": "x",
        "Angarium-Response": "forged", "Angarium-Status": "200",
    }  # fmt: skip
    position = await announce(js, names, b"\x00\xff", "a.$b", headers=headers)
    await announce(js, names, b"next")
    await settled(js, names, 2)
    (letter,) = await letters(js, names)
    assert letter.data == b"\x00\xff"
    assert letter.headers.pop("Angarium-Problem").startswith("event type 'a.$b': 1 to 16 tokens")
    assert letter.headers == {
        "Content-Type": "text/plain",
        "X-Own": "kept",
        "Angarium-Id": event_id("x 1", 0, 0),
        "Angarium-Type": "a.$b",
        "Nats-Msg-Id": f"acme._events:e{position}",
        "Angarium-Reason": "malformed",
        "Angarium-Attempts": "0",
    }
    assert await stored(js, names, A) == [b"next"]
    assert (owner.totals.events, owner.totals.malformed, owner.totals.unmatched) == (2, 1, 0)
    assert {(each.type, each.malformed, each.copies) for each in owner.routed} == {
        ("", True, 0),
        ("a", False, 1),
    }


async def test_a_delivery_to_the_place_of_malformed_events_takes_none_of_their_ids(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """A producer may publish to `acme._events`, and that becomes a dead letter of the same name."""
    position = await publish(js, names, NO_NAME, b"to nobody")
    await DeadLetterWriter(js, names).bury(NO_NAME, [Burial(position=position, reason="unknown_receiver")])
    await open_owner()
    assert await announce(js, names, b"malformed", "a.$b") == position
    await settled(js, names, 1)
    assert [letter.data for letter in await letters(js, names)] == [b"to nobody", b"malformed"]


async def test_events_of_an_impossible_tenant_become_dead_letters(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    tenant = next(f"1st{n}" for n in range(100) if partition_of(f"1st{n}", SHARDS) == PARTITION)
    await open_owner()
    await announce(js, names, b"1", tenant=tenant)
    await announce(js, names, b"2", "angarium.ping")
    await settled(js, names, 2)
    (named,) = await letters(js, names, f"{tenant}._events")
    (typed,) = await letters(js, names)
    assert named.headers["Angarium-Problem"].startswith(f"tenant '{tenant}'")
    assert typed.headers["Angarium-Problem"].startswith("types that begin with angarium.")


@pytest.mark.parametrize("fault", [refused(STORE_FULL), request_lost, ack_lost])
async def test_a_dead_letter_that_cannot_be_stored_delays_no_other_event(
    js: JetStream, names: Names, open_owner: OpenOwner, fault: Fault
) -> None:
    await subscribe(js, names, A)
    owner, gate = await open_owner(), asyncio.Event()
    owner.js.faults[names.dead(NO_NAME)] += [after(gate.wait), fault]
    await announce(js, names, b"bad", "$")
    bodies = await announce_many(js, names, 3)
    await has_stored(js, names, A, bodies)
    await settled(js, names, 0, unacked=4)
    gate.set()
    await settled(js, names, 4)
    assert len(await letters(js, names)) == 1


async def test_a_former_router_stores_no_dead_letter_after_its_lease(
    js: JetStream, names: Names, open_owner: OpenOwner, caplog: pytest.LogCaptureFixture
) -> None:
    """The event may be erased once another owner has routed it."""
    owner = await open_owner()
    position = await announce(js, names)
    await settled(js, names, position)
    owner.within_lease = False
    await announce(js, names, b"bad", "$")
    await until(lambda: "routing.waiting" in caplog.text or bool(owner.js.published[names.dead(NO_NAME)]))
    assert await letters(js, names) == []
    owner.within_lease = True
    await settled(js, names, position + 1)
    assert [each.data for each in await letters(js, names)] == [b"bad"]


ODD_TYPES = (b"\xff", b"\x0b\x0c", b"\xe2\x80\xa8", b"x" * 3900, b"a*", b"$SYS")


async def test_no_type_that_the_server_takes_stops_the_routing(nats_url: str, prefix: str) -> None:
    wire = await connect(ConnectOptions(servers=(nats_url,)))
    js = FaultyJetStream(wire)
    await js.start()
    names = await install(js, prefix)
    await subscribe(js, names, A)
    host, _, port = nats_url.removeprefix("nats://").partition(":")
    _, raw = await asyncio.open_connection(host, int(port))
    raw.write(b'CONNECT {"headers":true,"verbose":false}\r\n')
    for event_type in (*ODD_TYPES, b"last"):
        raw.write(names.publish_event("acme", "").encode().join((b"PUB ", event_type + b" 4\r\nbody\r\n")))
    await raw.drain()
    owner = Owner(js, names)
    await owner.start()
    await settled(js, names, len(ODD_TYPES) + 1)
    assert await stored(js, names, A) == [b"body"]
    assert [letter.data for letter in await letters(js, names)] == [b"body"] * len(ODD_TYPES)
    raw.close()
    await raw.wait_closed()
    await owner.stop()
    await js.stop()
    await wire.close()


async def test_burying_again_adds_nothing(js: JetStream, names: Names) -> None:
    event = published_event(await announce(js, names, b"bad", "$"), 1.0, "acme.$", None, b"bad")
    for _ in range(2):
        assert await bury_malformed(js, names, NO_NAME, event) == ""
    assert len(await letters(js, names)) == 1


async def test_an_event_that_is_gone_is_buried_without_its_body(js: JetStream, names: Names) -> None:
    event = published_event(await announce(js, names, b"bad", "$"), 1.0, "acme.$", None, b"bad")
    await js.purge(names.events, event.position + 1)
    assert await bury_malformed(js, names, NO_NAME, event) == ""
    (letter,) = await letters(js, names)
    assert (letter.data, letter.headers["Angarium-Body"]) == (b"", "gone")
    assert letter.headers["Angarium-Id"] == event.id


async def test_the_log_says_why_a_malformed_event_could_not_be_buried(js: JetStream, names: Names) -> None:
    event = published_event(await announce(js, names, b"bad", "$"), 1.0, "acme.$", None, b"bad")
    await js.request(f"$JS.API.STREAM.DELETE.{names.dead_letters}", b"", 5.0)
    assert "nothing answers" in await bury_malformed(js, names, NO_NAME, event)
    await js.request(f"$JS.API.STREAM.DELETE.{names.events}", b"", 5.0)
    assert "stream not found" in await bury_malformed(js, names, NO_NAME, event)
