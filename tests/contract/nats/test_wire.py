"""Guarantees of core NATS on one connection, and between two."""

import pytest

from streams.nats.errors import Disconnected
from streams.nats.wire import Wire
from tests.contract.support.servers import Server
from tests.support.waiting import KeptMessages


async def test_messages_of_one_publisher_arrive_in_its_order(server: Server, wire: Wire, prefix: str) -> None:
    seen = KeptMessages()
    await wire.subscribe(f"{prefix}.>", seen)
    for number in range(100):
        await wire.publish(f"{prefix}.{number % 3}.x", b"%d" % number)
    assert [int(message.data) for message in await seen.first(100)] == list(range(100))


async def test_a_message_has_subject_reply_and_headers(wire: Wire, prefix: str) -> None:
    seen = KeptMessages()
    await wire.subscribe(f"{prefix}.*", seen)
    await wire.publish(f"{prefix}.a", b"body", "answer.here", {"Some-Header": "räksmörgås: 1"})
    await wire.publish(f"{prefix}.b")
    first, second = await seen.first(2)
    assert (first.subject, first.data, first.reply) == (f"{prefix}.a", b"body", "answer.here")
    assert first.headers == {"Some-Header": "räksmörgås: 1"}
    assert (second.data, second.reply, second.headers) == (b"", "", None)


async def test_headers_that_are_not_needed_are_counted_unread(wire: Wire, prefix: str) -> None:
    seen = KeptMessages()
    await wire.subscribe(prefix, seen, headers=False)
    await wire.publish(prefix, b"body", headers={"Some-Header": "1"})
    await wire.publish(prefix, b"body")
    first, second = await seen.first(2)
    assert (first.data, first.headers) == (second.data, second.headers) == (b"body", None)
    plain = len(prefix) + len(b"body")
    assert (first.size, second.size) == (plain + len("NATS/1.0\r\nSome-Header: 1\r\n\r\n"), plain)


async def test_the_same_is_published_to_each(wire: Wire, prefix: str) -> None:
    seen = KeptMessages()
    await wire.subscribe(f"{prefix}.>", seen)
    await wire.publish_each([f"{prefix}.{number}" for number in range(100)], b"+ACK")
    await wire.publish(f"{prefix}.end")
    subjects = [message.subject for message in await seen.first(101)]
    assert subjects == [f"{prefix}.{end}" for end in (*range(100), "end")]


async def test_another_connection_hears_it(server: Server, wire: Wire, prefix: str) -> None:
    other = await server.connect("other")
    seen, echo = KeptMessages(), KeptMessages()
    await other.subscribe(prefix, seen)
    await other.publish(prefix, b"own")
    await seen.first(1)
    await wire.subscribe(prefix, echo)
    await wire.publish(prefix, b"from the first")
    await echo.first(1)
    assert [message.data for message in await seen.first(2)] == [b"own", b"from the first"]
    await other.close()


@pytest.mark.parametrize(
    ("pattern", "subject", "matches"),
    [
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*", "a", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("*.b.>", "a.b.c", True),
        ("a.b", "a.B", False),
    ],
)
async def test_wildcards(wire: Wire, prefix: str, pattern: str, subject: str, matches: bool) -> None:
    seen, end = KeptMessages(), KeptMessages()
    await wire.subscribe(f"{prefix}.{pattern}", seen)
    await wire.subscribe(f"{prefix}end", end)
    await wire.publish(f"{prefix}.{subject}", b"1")
    await wire.publish(f"{prefix}.{subject}", b"2")
    await wire.publish(f"{prefix}end")
    await end.first(1)
    if matches:
        await seen.first(2)
    assert bool(seen.messages) == matches


async def test_after_unsubscribing_nothing_comes(wire: Wire, prefix: str) -> None:
    dropped, kept = KeptMessages(), KeptMessages()
    subscription = await wire.subscribe(prefix, dropped)
    await wire.subscribe(prefix, kept)
    await wire.publish(prefix, b"1")
    await dropped.first(1)
    await subscription.unsubscribe()
    await subscription.unsubscribe()
    await wire.publish(prefix, b"2")
    await kept.first(2)
    assert [message.data for message in dropped.messages] == [b"1"]


async def test_the_server_answers_503_if_no_client_listens(wire: Wire, prefix: str) -> None:
    seen, inbox = KeptMessages(), wire.new_inbox()
    await wire.subscribe(inbox, seen)
    await wire.publish(prefix, b"any_node?", inbox)
    (answer,) = await seen.first(1)
    assert answer.subject == inbox
    assert answer.data == b""
    assert answer.headers is not None
    assert answer.headers["Status"] == "503"


async def test_inboxes_are_never_the_same(wire: Wire) -> None:
    assert len({wire.new_inbox() for _ in range(100)}) == 100


async def test_the_server_describes_itself(wire: Wire) -> None:
    major, minor, *_ = wire.server_version.split(".")
    assert (int(major), int(minor)) >= (2, 14)
    assert wire.max_payload == 1 << 20
    assert wire.is_connected


async def test_a_closed_wire_takes_nothing_more(server: Server, prefix: str) -> None:
    wire = await server.connect("closed")
    await wire.close()
    await wire.close()
    assert not wire.is_connected
    with pytest.raises(Disconnected):
        await wire.publish(prefix)
    with pytest.raises(Disconnected):
        await wire.subscribe(prefix, KeptMessages())
