"""When connections are kept, shared and bounded."""

import asyncio

import pytest

from angarium.delivery.pool import Limits
from angarium.delivery.resolver import Resolved
from angarium.delivery.transport import FailureKind, Transport
from tests.contract.transport.conftest import MakeTransport, Post, answered, failed, post_to
from tests.contract.transport.receiver import OK, Peer, Receiver, polite
from tests.contract.waiting import until

SOON_S = 0.15


async def test_a_connection_is_used_again(post: Post, receiver: Receiver) -> None:
    for _ in range(5):
        answered(await post())
    assert (receiver.connections, len(receiver.requests)) == (1, 5)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 500 Oh\r\ncontent-length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nx-end: 1\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    ],
)
async def test_a_connection_is_used_again_after_any_whole_answer(
    post: Post, receiver: Receiver, data: bytes
) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.answer(data)

    receiver.plays(script)
    statuses = {answered(await post()).status for _ in range(3)}
    assert len(statuses) == 1
    assert receiver.connections == 1


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n" + b"x" * 200000,
    ],
)
async def test_a_connection_is_not_used_again_where_it_may_be_out_of_step(
    post: Post, receiver: Receiver, data: bytes
) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer(data)
        await peer.until_closed()

    receiver.plays(script)
    for _ in range(2):
        answered(await post())
    assert receiver.connections == 2
    await until(lambda: receiver.open == 0)


async def test_requests_at_once_have_a_connection_each_and_leave_them_for_the_next(
    post: Post, receiver: Receiver
) -> None:
    for _ in range(3):
        for outcome in await asyncio.gather(*(post() for _ in range(8))):
            answered(outcome)
    assert (receiver.connections, len(receiver.requests)) == (8, 24)


async def test_a_receiver_that_closed_meanwhile_is_connected_to_anew(post: Post, receiver: Receiver) -> None:
    async def once(peer: Peer) -> None:
        await peer.answer()

    receiver.plays(once)
    for i in range(3):
        answered(await post())
        await until(lambda: receiver.open == 0)
        assert len(receiver.requests) == i + 1


async def test_names_at_one_address_share_no_connection(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    class Everything:
        async def resolve(self, host: str) -> Resolved:
            return Resolved(("127.0.0.1",), 30.0)

    transport = make_transport(resolver=Everything())
    for name in ("one", "two", "one"):
        answered(await post_to(transport, f"http://{name}:{receiver.port}/"))
    assert receiver.connections == 2


async def test_where_all_connections_are_taken_the_next_waits_its_turn(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    go = asyncio.Event()

    async def slow(peer: Peer) -> None:
        while True:
            await peer.request()
            await go.wait()
            await peer.send(OK)

    receiver.plays(slow)
    transport = make_transport(limits=Limits(connections_max=2))
    url = f"http://127.0.0.1:{receiver.port}/"
    posting = [asyncio.create_task(post_to(transport, url)) for _ in range(6)]
    await until(lambda: len(receiver.requests) == 2)
    failure = failed(await post_to(transport, url, timeout_s=SOON_S))
    assert failure.kind is FailureKind.OVERLOAD
    go.set()
    for outcome in await asyncio.gather(*posting):
        answered(outcome)
    assert (receiver.connections, len(receiver.requests)) == (2, 6)


async def test_an_idle_connection_makes_room_for_another_host(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    other = Receiver()
    await other.start(host="127.0.0.2")
    transport = make_transport(limits=Limits(connections_max=1))
    for _ in range(2):
        answered(await post_to(transport, f"http://127.0.0.1:{receiver.port}/"))
        answered(await post_to(transport, f"http://127.0.0.2:{other.port}/"))
    await until(lambda: receiver.open == 0)
    assert (receiver.connections, other.connections, other.open) == (2, 2, 1)
    await other.stop()


async def test_many_requests_over_few_connections_all_come_through(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    others = [Receiver() for _ in range(3)]
    for other in others:
        await other.start()
    transport = make_transport(limits=Limits(connections_max=2, per_host_max=1))
    urls = [f"http://127.0.0.1:{each.port}/" for each in (receiver, *others)]
    for outcome in await asyncio.gather(*(post_to(transport, url) for url in urls * 10)):
        answered(outcome)
    assert sum(len(each.requests) for each in (receiver, *others)) == 40
    for other in others:
        await other.stop()


async def test_a_closed_transport_connects_no_more(transport: Transport, receiver: Receiver) -> None:
    receiver.plays(polite)
    url = f"http://127.0.0.1:{receiver.port}/"
    answered(await post_to(transport, url))
    await transport.close()
    await transport.close()
    await until(lambda: receiver.open == 0)
