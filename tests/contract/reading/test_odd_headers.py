"""Blocks of headers that no client library would write: one event, however the message is read.

They are sent to the real nats-server as bytes, which it stores as they are.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import Struct

from actors.machine.event import Event
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.nats.protocol import BLOCK_BYTES_MAX, LINES_MAX
from streams.reading.backlog import Backlog
from streams.reading.messages import HEADERS_UNREAD, stored_event
from streams.reading.sampling import RECORD_BYTES, stored_size
from tests.contract.support.inboxes import RECEIVER, SHARD, Owner
from tests.support.installation import install


class ReadEvents(Struct):
    """The events of the same messages, by each way of reading."""

    from_consumer: list[Event]
    from_pages: list[Event]
    from_leader: list[Event]


class Producer(Struct):
    """A producer that sends blocks of headers as bytes, and the owner of its receiver."""

    js: JetStream
    owner: Owner
    backlog: Backlog
    raw: asyncio.StreamWriter
    subject: bytes
    stream: str

    async def publish(self, *blocks: bytes) -> ReadEvents:
        """Publish a message with each of these blocks of headers; returns what is read of them."""
        for block in blocks:
            sizes = len(block), len(block) + len(b"body")
            self.raw.write(b"HPUB %b %d %d\r\n%bbody\r\n" % (self.subject, *sizes, block))
        await self.raw.drain()
        await self.owner.has(len(blocks))
        batch = await self.backlog.read(RECEIVER, 0, len(blocks), 100)
        events = [event for _, event in self.owner.events]
        found = [await self.js.message(self.stream, event.position) for event in events]
        return ReadEvents(events, batch.events, [stored_event(each) for each in found if each is not None])


@pytest.fixture
async def producer(nats_url: str, prefix: str) -> AsyncIterator[Producer]:
    wire = await connect(ConnectOptions(servers=(nats_url,)))
    js = JetStream(wire)
    await js.start()
    names = await install(js, prefix)
    host, _, port = nats_url.removeprefix("nats://").partition(":")
    _, raw = await asyncio.open_connection(host, int(port))
    raw.write(b'CONNECT {"headers":true,"verbose":false}\r\n')
    owner, backlog = Owner(js, names), Backlog(js, names, SHARD, asyncio.Semaphore(1))
    await owner.inbox.start()
    yield Producer(js, owner, backlog, raw, names.publish_to(RECEIVER).encode(), names.deliveries)
    raw.close()
    await raw.wait_closed()
    await owner.inbox.stop()
    await js.stop()
    await wire.close()


async def test_headers_that_no_client_would_write_make_the_same_event_on_every_way(
    producer: Producer,
) -> None:
    read = await producer.publish(
        b"NATS/1.0\r\nNats-Msg-Id: \xff\xfe\r\n\r\n",
        b"NATS/1.0\r\nAngarium-Id:no-blank\r\n\r\n",
        b"NATS/1.0\r\nAngarium-Id: first\r\nAngarium-Id: last\r\n\r\n",
        b"NATS/1.0\r\nAngarium-Id:\t tabs \t\r\n\r\n",
        b"NATS/1.0\r\nAngarium-Id: a\nb\rc\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n: no name\r\nA B: c\r\nAngarium-Id: ok\r\n\r\n",
        b"NATS/1.0 503\r\nAngarium-Id: status\r\n\r\n",
        b"NATS/1.0 503 No Responders\r\nAngarium-Id: status\r\n\r\n",
        b"NATS/1.0\r\n Angarium-Id : folded\r\n\r\n",
        b"NATS/1.0\r\nAngarium-Id: \xc2\x85nel\xc2\xa0\r\n\r\n",
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0\r\nNats-Pin-Id: forged\r\nNats-Stream: forged\r\n\r\n",
        b"NATS/1.0\r\nNats-Sequence: 7\r\nAngarium-Id: idNats-Stream: forged\r\n\r\n",
        b"garbage\r\n\r\n",
        b"NATS/1.0",
        b"x",
        # Without their end, of which nats-server cuts off two bytes all the same.
        b"NATS/1.0\r\nAngarium-Id: order-42\r\n",
        b"NATS/1.0\r\nAngarium-Id: order-42\r\nAngarium-Source: 77\r\n",
        b"NATS/1.0\r\nAngarium-Id: order-42\r\nAngarium-Type: order.created",
        b"NATS/1.0\r\nAngarium-Id: order-42\r\n\r\nAngarium-Type: a.b",
        b"NATS/1.0\r\nAngarium-Id: order-42\r\nNats-Stream: forged\r\nNats-Sequence: 7\r\n",
        b"NATS/1.0\r\nAngarium-Id: order-42\r",
    )
    assert read.from_pages == read.from_consumer
    assert read.from_leader == read.from_consumer
    ids = [event.id for event in read.from_consumer[-6:]]
    assert ids[1:5] == ["order-42"] * 4
    assert all(id_.startswith("evt_") for id_ in (ids[0], ids[5]))
    assert not any(event.malformed for event in read.from_consumer)


def lines(count: int) -> bytes:
    """A block with that many headers."""
    return b"NATS/1.0\r\n" + b"".join(b"%x:\r\n" % number for number in range(count)) + b"\r\n"


def size(total: int) -> bytes:
    """A block of that size with one header."""
    return (b"NATS/1.0\r\nA: %b\r\n\r\n") % (b"a" * (total - len(b"NATS/1.0\r\nA: \r\n\r\n")))


async def test_an_event_with_too_many_or_too_large_headers_is_malformed_on_every_way(
    producer: Producer,
) -> None:
    """Parsing 13,000 headers takes 6 ms, in which no lease is renewed."""
    too_many = lines(13_000)[:65_000] + b"\r\n\r\n"
    read = await producer.publish(
        lines(LINES_MAX), lines(LINES_MAX + 1), size(BLOCK_BYTES_MAX), size(BLOCK_BYTES_MAX + 1), too_many
    )
    assert read.from_pages == read.from_consumer
    assert read.from_leader == read.from_consumer
    malformed = [event.malformed for event in read.from_consumer]
    assert malformed == ["", HEADERS_UNREAD, "", HEADERS_UNREAD, HEADERS_UNREAD]
    assert [event.body for event in read.from_consumer] == [b"body"] * 5
    stored = await producer.js.message(producer.stream, read.from_consumer[-1].position)
    assert stored is not None
    assert stored_size(stored) == len(too_many) + len(stored.subject) + len(b"body") + RECORD_BYTES
