"""Publishing many messages at once: in order, each with its own answer, and all of them in the end."""

import asyncio

import pytest

from streams.nats.answers import NoResponders, Put, Refused, Stored, Unanswered
from streams.nats.errors import Disconnected
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.contract.conftest import MakeStream
from tests.contract.support.servers import Server
from tests.support.waiting import KeptMessages

TOO_LARGE = 10054
MESSAGE_ID = "Nats-Msg-Id"


async def test_messages_are_stored_in_their_order_as_they_were(
    js: JetStream, make_stream: MakeStream, prefix: str
) -> None:
    await make_stream()
    headers = {"X": "Grüße", MESSAGE_ID: "1"}
    puts = [Put(f"{prefix}.a", b"\x00\xffbody", headers), *(Put(f"{prefix}.b", b"%d" % n) for n in range(99))]
    assert await js.publish_all(puts) == [Stored(number) for number in range(1, 101)]
    first = await js.message(prefix, 1)
    assert first is not None
    assert (first.subject, first.data, first.headers) == (f"{prefix}.a", b"\x00\xffbody", headers)
    messages = (await js.read(prefix, f"{prefix}.b", 1)).messages
    assert [each.data for each in messages] == [b"%d" % number for number in range(99)]


async def test_each_has_its_own_answer(js: JetStream, make_stream: MakeStream, prefix: str) -> None:
    await make_stream()
    known = Put(f"{prefix}.a", b"", {MESSAGE_ID: "1"})
    larger = Put(f"{prefix}.a", b"x" * (js.wire.max_payload + 1))
    stored, too_large, nowhere, repeated = await js.publish_all([known, larger, Put("nowhere", b""), known])
    assert (stored, repeated) == (Stored(1), Stored(1, duplicate=True))
    assert isinstance(too_large, Refused)
    assert too_large.code == TOO_LARGE
    assert isinstance(nowhere, NoResponders)
    assert "nothing answers on nowhere" in nowhere.why
    assert await js.publish_all([larger]) == [too_large]


async def test_publishes_without_an_answer_end_as_well(
    js: JetStream, wire: Wire, make_stream: MakeStream, prefix: str
) -> None:
    await make_stream()
    silent = f"silent-{prefix}"
    await wire.subscribe(silent, KeptMessages())
    stored, unanswered = await js.publish_all([Put(f"{prefix}.a", b""), Put(silent, b"")], timeout_s=0.3)
    assert stored == Stored(1)
    assert unanswered == Unanswered("no answer in time")


async def test_open_requests_end_when_it_is_stopped(js: JetStream, wire: Wire, prefix: str) -> None:
    await wire.subscribe(prefix, requests := KeptMessages())
    publishing = asyncio.ensure_future(js.publish_all([Put(prefix, b"")] * 2, timeout_s=60))
    await requests.first(2)
    await js.stop()
    assert await publishing == [Unanswered("stopped")] * 2
    assert await js.publish_all([Put(prefix, b"")]) == [Unanswered("stopped")]


async def test_an_answer_to_nothing_that_was_asked_does_no_harm(
    js: JetStream, wire: Wire, server: Server, prefix: str
) -> None:
    other = await server.connect("impostor")
    await wire.subscribe(prefix, requests := KeptMessages())
    publishing = asyncio.ensure_future(js.publish_all([Put(prefix, b"")] * 2, timeout_s=60))
    first, second = [message.reply for message in await requests.first(2)]
    row = first.rpartition("-")[0]
    for reply in (row, f"{row}-2", f"{row}-x", f"{row}-", f"{row}--1", first):
        await other.publish(reply, b'{"stream": "S", "seq": 7}')
    await other.publish(first, b'{"stream": "S", "seq": 8}')
    await other.publish(second, b'{"stream": "S", "seq": 9}')
    assert await publishing == [Stored(7), Stored(9)]
    await other.close()


async def test_a_closed_wire_takes_nothing_more(server: Server, prefix: str) -> None:
    wire = await server.connect("closed")
    assert wire.unsent == 0
    await wire.close()
    with pytest.raises(Disconnected):
        wire.send([Put(prefix, b"")], ["reply"])
