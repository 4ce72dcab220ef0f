"""Attempts without an answer: the stage at which they end, what was sent, and the next attempt."""

import asyncio
import os
import resource
import socket
from ipaddress import ip_network

import pytest
from httptools import HttpParserCallbackError

from angarium.delivery.connections import guard
from angarium.delivery.connections.guard import Guard
from angarium.delivery.connections.resolver import Resolved
from angarium.delivery.http_exchange.answer import Answer
from angarium.delivery.http_exchange.transport import FailureKind, Transport
from tests.contract.transport.conftest import MakeTransport, Post, answered, failed, post_to
from tests.contract.transport.receiver import Peer, Receiver, polite
from tests.support.waiting import until

SOON_S = 0.3


class Names:
    """A resolver that answers from a table; a name that is not in it is never answered."""

    def __init__(self, valid_s: float = 30.0, **names: list[str]) -> None:
        self.names = names
        self.valid_s = valid_s

    async def resolve(self, host: str) -> Resolved:
        if host not in self.names:
            await asyncio.get_running_loop().create_future()
        if not self.names[host]:
            raise OSError("Domain name not found")
        return Resolved(tuple(self.names[host]), self.valid_s)


class Lease:
    """Counts how often it was asked; answers in the order given, the last answer forever."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def closed_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("sent", [b"", b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nserver: half"])
@pytest.mark.parametrize("ending", ["close", "reset", "half_close"])
async def test_a_connection_that_ends_before_the_headers_do(
    post: Post, receiver: Receiver, sent: bytes, ending: str
) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer(sent)
        if ending == "reset":
            peer.reset()
        elif ending == "half_close":
            peer.half_close()
            await peer.until_closed()

    receiver.plays(script, polite)
    lease = Lease(True)
    assert failed(await post(may_start=lease)).kind is FailureKind.RESET
    assert (len(receiver.requests), lease.asked) == (1, 1)
    answered(await post())


async def test_a_reset_before_the_request_is_read(post: Post, receiver: Receiver) -> None:
    async def script(peer: Peer) -> None:
        peer.reset()

    receiver.plays(script, polite)
    assert failed(await post(body=b"x" * 262144)).kind in (FailureKind.RESET, FailureKind.CONNECT)
    answered(await post())


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nserver: half"])
async def test_silence_ends_at_the_deadline(post: Post, receiver: Receiver, sent: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer(sent)
        await peer.until_closed()

    receiver.plays(script, polite)
    failure = failed(await post(timeout_s=SOON_S))
    assert failure.kind is FailureKind.TIMEOUT
    assert failure.latency_s >= SOON_S * 0.9
    assert len(receiver.requests) == 1
    answered(await post())


async def test_the_deadline_is_one_for_all_and_not_for_each_read(post: Post, receiver: Receiver) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer(b"HTTP/1.1 200 OK\r\nx-slow: ")
        while True:
            await peer.send(b"x")
            await asyncio.sleep(SOON_S / 10)

    receiver.plays(script)
    assert failed(await post(timeout_s=SOON_S)).kind is FailureKind.TIMEOUT


async def test_a_receiver_that_reads_nothing_ends_at_the_deadline(post: Post, receiver: Receiver) -> None:
    stay = asyncio.Event()

    async def script(peer: Peer) -> None:
        await stay.wait()

    receiver.plays(script)
    assert failed(await post(body=b"x" * (8 << 20), timeout_s=SOON_S)).kind is FailureKind.TIMEOUT


async def test_a_defect_of_ours_in_reading_an_answer_is_not_a_failure_of_the_receiver(
    post: Post, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Answer, "on_header", lambda *_: 1 / 0)
        with pytest.raises(HttpParserCallbackError) as raised:
            await post()
    assert isinstance(raised.value.__context__, ZeroDivisionError)
    await until(lambda: receiver.open == 0)
    assert answered(await post()).status == 200


async def test_a_port_without_a_listener_is_refused(transport: Transport, closed_port: int) -> None:
    lease = Lease(True)
    failure = failed(await post_to(transport, f"http://127.0.0.1:{closed_port}/", may_start=lease))
    assert failure.kind is FailureKind.CONNECT
    assert f"127.0.0.1 port {closed_port}" in failure.detail
    assert lease.asked == 0


async def test_a_node_out_of_descriptors_blames_itself(post: Post, receiver: Receiver) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        failure = failed(await post())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert failure.kind is FailureKind.OVERLOAD
    assert receiver.connections == 0
    answered(await post())


async def test_the_lease_is_asked_once_connected_and_nothing_is_sent_without_it(
    transport: Transport, receiver: Receiver
) -> None:
    seen: list[bytes] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.until_closed())

    receiver.plays(script)
    lease = Lease(False)
    url = f"http://127.0.0.1:{receiver.port}/"
    failure = failed(await post_to(transport, url, may_start=lease))
    assert failure.kind is FailureKind.LEASE
    assert lease.asked == 1
    await transport.close()
    await until(lambda: seen == [b""])


async def test_the_lease_is_asked_for_each_attempt_on_a_kept_connection(
    post: Post, receiver: Receiver
) -> None:
    lease = Lease(True, True, False)
    answered(await post(may_start=lease))
    answered(await post(may_start=lease))
    assert failed(await post(may_start=lease)).kind is FailureKind.LEASE
    answered(await post())
    assert lease.asked == 3
    assert len(receiver.requests) == 3


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_kept_connection_that_died_is_replaced_once_and_the_lease_asked_again(
    post: Post, receiver: Receiver, ending: str
) -> None:
    async def dies(peer: Peer) -> None:
        await peer.answer()
        await peer.request()
        if ending == "reset":
            peer.reset()

    receiver.plays(dies, polite)
    lease = Lease(True)
    answered(await post(may_start=lease))
    answered(await post(may_start=lease, body=b"second"))
    assert [received.body for received in receiver.requests] == [b'{"a": 1}', b"second", b"second"]
    assert (receiver.connections, lease.asked) == (2, 3)


async def test_a_dead_connection_is_replaced_even_if_the_name_must_be_resolved_again(
    make_transport: MakeTransport, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(peer: Peer) -> None:
        await peer.answer()
        await peer.request()

    monkeypatch.setattr(guard, "VERDICT_KEPT_MIN_S", 0.0)
    receiver.plays(dies, polite)
    transport = make_transport(resolver=Names(valid_s=0.0, hook=["127.0.0.1"]))
    for _ in range(2):
        answered(await post_to(transport, f"http://hook:{receiver.port}/"))
    assert (receiver.connections, len(receiver.requests)) == (2, 3)


async def test_the_replacement_is_not_sent_without_the_lease(post: Post, receiver: Receiver) -> None:
    async def dies(peer: Peer) -> None:
        await peer.answer()
        await peer.request()

    receiver.plays(dies, polite)
    lease = Lease(True, True, False)
    answered(await post(may_start=lease))
    assert failed(await post(may_start=lease)).kind is FailureKind.LEASE
    assert len(receiver.requests) == 2


async def test_the_replacement_is_not_replaced(post: Post, receiver: Receiver) -> None:
    async def dies(peer: Peer) -> None:
        await peer.answer()
        await peer.request()

    async def dies_at_once(peer: Peer) -> None:
        await peer.request()

    receiver.plays(dies, dies_at_once)
    answered(await post())
    assert failed(await post()).kind is FailureKind.RESET
    assert (receiver.connections, len(receiver.requests)) == (2, 3)


@pytest.mark.parametrize("how", ["one byte", "silence"])
async def test_a_kept_connection_is_not_replaced_once_the_receiver_may_have_answered(
    post: Post, receiver: Receiver, how: str
) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer()
        await peer.request()
        if how == "one byte":
            await peer.send(b"H")
        else:
            await peer.until_closed()

    receiver.plays(script, polite)
    answered(await post())
    kind = failed(await post(timeout_s=SOON_S)).kind
    assert kind is (FailureKind.RESET if how == "one byte" else FailureKind.TIMEOUT)
    assert (receiver.connections, len(receiver.requests)) == (1, 2)


async def test_an_address_that_the_guard_refuses_is_never_connected_to(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    names = Names(inside=["127.0.0.1"], mixed=["127.0.0.1", "10.0.0.1"])
    lease = Lease(True)
    for refusing, url, why in (
        (Guard(allow_http=True, resolver=names), f"http://127.0.0.1:{receiver.port}/", "loopback"),
        (Guard(allow_http=True, resolver=names), f"http://inside:{receiver.port}/", "loopback"),
        (Guard(allow_http=False), f"http://127.0.0.1:{receiver.port}/", "https"),
        (
            Guard(allow_http=True, allow_networks=[ip_network("127.0.0.0/8")], resolver=names),
            f"http://mixed:{receiver.port}/",
            "private",
        ),
    ):
        failure = failed(await post_to(make_transport(refusing), url, may_start=lease))
        assert failure.kind is FailureKind.BLOCKED
        assert why in failure.detail
    assert (receiver.connections, lease.asked) == (0, 0)


async def test_a_name_leads_to_its_judged_address_and_stays_the_host(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    names = Names(hook=["127.0.0.1"])
    transport = make_transport(resolver=names)
    answered(await post_to(transport, f"http://hook:{receiver.port}/"))
    assert receiver.requests[0].all(b"host") == [b"hook:%d" % receiver.port]
    names.names["hook"] = ["10.0.0.1"]
    answered(await post_to(transport, f"http://hook:{receiver.port}/"))


async def test_an_address_that_does_not_answer_gives_way_to_the_next(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    transport = make_transport(resolver=Names(hook=["127.0.0.9", "127.0.0.1"]))
    answered(await post_to(transport, f"http://hook:{receiver.port}/"))
    answered(await post_to(transport, f"http://hook:{receiver.port}/"))
    assert receiver.connections == 1


async def test_names_that_are_unknown_or_never_answered(make_transport: MakeTransport) -> None:
    transport = make_transport(resolver=Names(unknown=[]))
    assert failed(await post_to(transport, "http://unknown/")).kind is FailureKind.RESOLVE
    assert failed(await post_to(transport, "http://silent/", timeout_s=SOON_S)).kind is FailureKind.TIMEOUT


async def test_a_post_that_is_cancelled_takes_its_connection_along(post: Post, receiver: Receiver) -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.until_closed()

    receiver.plays(script, polite)
    posting = asyncio.create_task(post())
    await asked.wait()
    posting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await posting
    await until(lambda: receiver.open == 0)
    answered(await post())


async def test_closing_ends_what_is_idle_and_what_is_in_flight(
    transport: Transport, receiver: Receiver
) -> None:
    asked = asyncio.Event()

    async def silent(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.until_closed()

    url = f"http://127.0.0.1:{receiver.port}/"
    receiver.plays(silent, polite)
    posting = asyncio.create_task(post_to(transport, url))
    await asked.wait()
    answered(await post_to(transport, url))
    await transport.close()
    assert failed(await posting).kind is FailureKind.RESET
    await until(lambda: receiver.open == 0)


async def test_an_answer_without_a_request_is_not_taken_for_the_next(post: Post, receiver: Receiver) -> None:
    spoke = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.answer()
        await peer.send(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        spoke.set()

    receiver.plays(script, polite)
    assert answered(await post()).body == b"ok"
    await spoke.wait()
    await until(lambda: receiver.open == 0)
    assert answered(await post()).status == 200
