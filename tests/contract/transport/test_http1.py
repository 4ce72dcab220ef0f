"""Behaviour of our own transport only: it closes idle connections, and reads an answer while it writes."""

import asyncio
from collections.abc import Iterator

import pytest

from angarium.delivery.connections.pool import ConnectionLimits
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.http_exchange.answer import Answer
from angarium.delivery.http_exchange.transport import FailureKind
from tests.contract.transport.conftest import MakeTransport, Post, answered, failed, post_to
from tests.contract.transport.receiver import OK, Peer, Receiver, polite
from tests.support.waiting import until

SOON_S = 0.3
HANGING = 600


@pytest.fixture(params=[Http1Transport], ids=["http1"])
def kind(request: pytest.FixtureRequest) -> type[Http1Transport]:
    chosen: type[Http1Transport] = request.param
    return chosen


@pytest.fixture
def stay() -> Iterator[asyncio.Event]:
    stay = asyncio.Event()
    yield stay
    stay.set()


async def test_an_early_answer_counts_and_the_connection_ends(
    post: Post, receiver: Receiver, stay: asyncio.Event
) -> None:
    async def script(peer: Peer) -> None:
        await peer.first_byte()
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await stay.wait()

    receiver.plays(script, polite)
    assert answered(await post(body=b"x" * (8 << 20))).status == 413
    assert answered(await post()).status == 200
    assert receiver.connections == 2


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"HTTP/1.1 503 Busy\r\nx-long: ", 503), (b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\n", 200)],
)
async def test_a_status_without_an_end_of_headers_is_reported(
    post: Post, receiver: Receiver, sent: bytes, status: int
) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer(sent)
        await peer.until_closed()

    receiver.plays(script)
    failure = failed(await post(timeout_s=SOON_S))
    assert (failure.kind, failure.status) == (FailureKind.TIMEOUT, status)


async def test_a_defect_of_ours_in_reading_a_body_leaves_the_status_in_force(
    post: Post, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Answer, "on_body", lambda *_: 1 / 0)
        assert answered(await post()).status == 200
    await until(lambda: receiver.open == 0)
    assert answered(await post()).body == b"ok"


async def test_idle_connections_are_closed_in_time_and_the_oldest_first(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    transport = make_transport(limits=ConnectionLimits(idle_s=SOON_S))
    url = f"http://127.0.0.1:{receiver.port}/"
    for _ in range(2):
        await asyncio.gather(*(post_to(transport, url) for _ in range(3)))
        assert receiver.open == 3
        await until(lambda: receiver.open == 0)
    assert receiver.connections == 6


async def test_a_connection_in_use_is_not_idle(make_transport: MakeTransport, receiver: Receiver) -> None:
    transport = make_transport(limits=ConnectionLimits(idle_s=SOON_S))

    async def slow(peer: Peer) -> None:
        await peer.answer()
        await peer.request()
        await asyncio.sleep(2 * SOON_S)
        await peer.send(OK)
        await peer.until_closed()

    receiver.plays(slow)
    url = f"http://127.0.0.1:{receiver.port}/"
    for _ in range(2):
        answered(await post_to(transport, url))
    assert receiver.connections == 1


async def test_a_waiter_that_gives_up_leaves_its_turn_to_the_next(
    make_transport: MakeTransport, receiver: Receiver, stay: asyncio.Event
) -> None:
    async def slow(peer: Peer) -> None:
        await peer.request()
        await stay.wait()
        await peer.send(OK)
        await polite(peer)

    receiver.plays(slow)
    transport = make_transport(limits=ConnectionLimits(per_host_max=1))
    url = f"http://127.0.0.1:{receiver.port}/"
    posting = [asyncio.create_task(post_to(transport, url)) for _ in range(4)]
    await until(lambda: len(receiver.requests) == 1)
    posting[1].cancel()
    outcome = await post_to(transport, url, timeout_s=SOON_S)
    assert failed(outcome).kind is FailureKind.OVERLOAD
    stay.set()
    for posted in (posting[0], posting[2], posting[3]):
        answered(await posted)
    assert receiver.connections == 1


async def test_the_oldest_idle_connection_makes_room_for_a_receiver_of_the_host(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    transport = make_transport(limits=ConnectionLimits(per_host_max=3))
    url = f"http://127.0.0.1:{receiver.port}/"
    for name in ("acme.one", "acme.two", "acme.three", "acme.one", "acme.four"):
        answered(await post_to(transport, url, receiver=name))
    await until(lambda: receiver.open == 3)
    assert receiver.connections == 4
    for name in ("acme.one", "acme.three", "acme.four"):
        answered(await post_to(transport, url, receiver=name))
    assert receiver.connections == 4
    answered(await post_to(transport, url, receiver="acme.two"))
    assert receiver.connections == 5


async def test_idle_connections_of_one_receiver_make_room_for_others_at_once(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    transport = make_transport(limits=ConnectionLimits(per_host_max=4))
    url = f"http://127.0.0.1:{receiver.port}/"
    for outcome in await asyncio.gather(*(post_to(transport, url, receiver="acme.wide") for _ in range(4))):
        answered(outcome)
    assert receiver.open == 4
    for name in ("acme.one", "acme.two", "acme.wide"):
        answered(await post_to(transport, url, receiver=name))
    await until(lambda: receiver.open == 4)
    assert receiver.connections == 6


async def test_receivers_that_wait_for_a_host_have_their_turns_one_after_the_other(
    make_transport: MakeTransport, receiver: Receiver, stay: asyncio.Event
) -> None:
    async def slow(peer: Peer) -> None:
        while True:
            await peer.request()
            await stay.wait()
            await peer.send(OK)

    receiver.plays(slow)
    transport = make_transport(limits=ConnectionLimits(per_host_max=1))
    posting = []
    for name in ("a", "b", "c", "c", "d", "b"):
        url = f"http://127.0.0.1:{receiver.port}/{name}"
        posting.append(asyncio.create_task(post_to(transport, url, receiver=f"acme.{name}")))
        await until(lambda: len(receiver.requests) == 1)
    stay.set()
    for posted in posting:
        answered(await posted)
    order = [received.line.split()[1] for received in receiver.requests]
    assert order == [b"/a", b"/b", b"/c", b"/d", b"/b", b"/c"]
    assert receiver.connections == 6


async def test_a_dead_kept_connection_is_replaced_by_a_new_one_though_others_are_kept(
    post: Post, receiver: Receiver
) -> None:
    async def dies(peer: Peer) -> None:
        await peer.answer()
        await peer.request()

    receiver.plays(dies, dies, dies, polite)
    await asyncio.gather(*(post() for _ in range(3)))
    assert answered(await post()).status == 200
    assert receiver.connections == 4


async def test_hundreds_of_hanging_receivers_keep_no_other_from_their_host(
    make_transport: MakeTransport, receiver: Receiver, stay: asyncio.Event
) -> None:
    """Receivers that share a host share nothing else; one bound for all would delay the healthy ones."""

    async def hangs(peer: Peer) -> None:
        await peer.request()
        await stay.wait()

    receiver.plays(*[hangs] * HANGING, polite)
    transport = make_transport()
    url = f"http://127.0.0.1:{receiver.port}/"
    hanging = [asyncio.create_task(post_to(transport, url)) for _ in range(HANGING)]
    await until(lambda: len(receiver.requests) == HANGING)
    answered(await post_to(transport, url))
    stay.set()
    await asyncio.gather(*hanging)
