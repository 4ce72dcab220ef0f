"""Connections: when they are kept, for which receiver, and how many."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from angarium.delivery.connections.pool import ConnectionLimits
from angarium.delivery.connections.resolver import Resolved
from angarium.delivery.http_exchange.transport import FailureKind, Transport
from tests.contract.transport.conftest import MakeTransport, Post, answered, failed, post_to
from tests.contract.transport.receiver import OK, Peer, Receiver, polite
from tests.support.waiting import until

SOON_S = 0.15
FORGED = b"HTTP/1.1 299 Forged\r\ncontent-length: 0\r\n\r\n"


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


async def test_a_receiver_that_closed_meanwhile_is_connected_to_again(post: Post, receiver: Receiver) -> None:
    async def once(peer: Peer) -> None:
        await peer.answer()

    receiver.plays(once)
    for i in range(3):
        answered(await post())
        await until(lambda: receiver.open == 0)
        assert len(receiver.requests) == i + 1


async def test_receivers_of_one_host_share_no_connection(transport: Transport, receiver: Receiver) -> None:
    url = f"http://127.0.0.1:{receiver.port}/"
    for name in ("acme.billing", "acme.audit", "beta.billing") * 2:
        answered(await post_to(transport, url, receiver=name))
    assert (receiver.connections, receiver.open) == (3, 3)


async def test_an_answer_that_is_sent_twice_is_never_another_receivers(
    transport: Transport, receiver: Receiver
) -> None:
    async def script(peer: Peer) -> None:
        while True:
            if b"/twice" in (await peer.request()).line:
                await peer.send(FORGED)
                await asyncio.sleep(0)
                await peer.send(FORGED)
            else:
                await peer.send(b"HTTP/1.1 500 Own\r\ncontent-length: 0\r\n\r\n")

    receiver.plays(script)
    url = f"http://127.0.0.1:{receiver.port}"
    for _ in range(50):
        answered(await post_to(transport, f"{url}/twice", receiver="acme.twice"))
        assert answered(await post_to(transport, f"{url}/own", receiver="beta.own")).status == 500
    assert sum(received.line == b"POST /own HTTP/1.1" for received in receiver.requests) == 50


@pytest.mark.parametrize("early", [FORGED, b"H", b"\r\n"])
async def test_a_kept_connection_with_unread_bytes_is_replaced(
    post: Post, receiver: Receiver, early: bytes
) -> None:
    kept: list[Peer] = []
    rest: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.answer()
        kept.append(peer)
        rest.append(await peer.until_closed())

    receiver.plays(script, polite)
    answered(await post())
    kept[0].push(early)
    assert answered(await post(body=b"second")).status == 200
    assert [received.body for received in receiver.requests] == [b'{"a": 1}', b"second"]
    await until(lambda: rest == [b""])
    assert receiver.connections == 2


async def test_bytes_that_come_before_the_first_request_are_not_an_answer(
    post: Post, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    connect = loop.create_connection
    peers: list[socket.socket] = []

    async def spoken_to(*args: Any, **options: Any) -> tuple[asyncio.Transport, asyncio.Protocol]:
        transport, protocol = await connect(*args, **options)
        peers.append(listener.accept()[0])
        peers[-1].sendall(FORGED)
        peers[-1].setblocking(False)
        return transport, protocol

    with socket.create_server(("127.0.0.1", 0)) as listener, monkeypatch.context() as patch:
        patch.setattr(loop, "create_connection", spoken_to)
        port, receiver.port = receiver.port, listener.getsockname()[1]
        failure = failed(await post())
        assert (failure.kind, failure.detail) == (
            FailureKind.PROTOCOL,
            "bytes came before the request was sent",
        )
        with contextlib.suppress(ConnectionResetError):
            assert await loop.sock_recv(peers[0], 1) == b""
        peers[0].close()
    receiver.port = port
    answered(await post())


async def test_an_answer_that_comes_before_the_request_is_written_counts_and_is_the_last(
    post: Post, receiver: Receiver
) -> None:
    async def early(peer: Peer) -> None:
        await peer.first_byte()
        await peer.send(FORGED)
        await peer.until_closed()

    receiver.plays(early, polite)
    assert answered(await post(body=b"x" * (8 << 20))).status == 299
    assert answered(await post()).status == 200
    assert receiver.connections == 2


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


async def test_an_attempt_waits_its_turn_if_all_connections_are_taken(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    go = asyncio.Event()

    async def slow(peer: Peer) -> None:
        while True:
            await peer.request()
            await go.wait()
            await peer.send(OK)

    receiver.plays(slow)
    transport = make_transport(limits=ConnectionLimits(connections_max=2))
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
    transport = make_transport(limits=ConnectionLimits(connections_max=1))
    for _ in range(2):
        answered(await post_to(transport, f"http://127.0.0.1:{receiver.port}/"))
        answered(await post_to(transport, f"http://127.0.0.2:{other.port}/"))
    await until(lambda: receiver.open == 0)
    assert (receiver.connections, other.connections, other.open) == (2, 2, 1)
    await other.stop()


async def test_many_receivers_of_a_host_stay_within_the_bounds(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    transport = make_transport(limits=ConnectionLimits(connections_max=4, per_host_max=3))
    url = f"http://127.0.0.1:{receiver.port}/"
    names = [f"acme.r{number}" for number in range(12)]
    for _ in range(3):
        for outcome in await asyncio.gather(*(post_to(transport, url, receiver=name) for name in names)):
            answered(outcome)
        assert receiver.open <= 4
    assert len(receiver.requests) == 36


async def test_many_requests_over_few_connections_all_come_through(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    others = [Receiver() for _ in range(3)]
    for other in others:
        await other.start()
    transport = make_transport(limits=ConnectionLimits(connections_max=2, per_host_max=1))
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
