"""Hostile receivers: the outcome follows the wire format's table, memory is bounded, later attempts succeed.

Each attempt goes all the way from the sender to the verdict. After each the same sender makes another one,
which has to get the answer that is meant for it: one with a status of its own.
"""

import asyncio
import contextlib
import gzip
import select
import socket
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest

from actors.configuration.policy import Policy
from actors.machine.event import Event
from actors.machine.outcome import RETRY_AFTER_MAX_S, Answered, Failed, Verdict, judge, retry_after_s
from actors.ports import Attempt
from angarium.delivery.http_exchange.transport import BODY_MAX, HEAD_MAX, HEADERS_MAX, FailureKind, Transport
from angarium.delivery.sender import HttpSender
from tests.contract.transport.conftest import PATIENCE_S
from tests.contract.transport.receiver import OK, Peer, Receiver
from tests.support.free_ports import free_port
from tests.support.waiting import until

SLOW_S = 0.3
NOW = 1_700_000_000.0

STATUS_OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = STATUS_OK + b"transfer-encoding: chunked\r\n\r\n"
INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n"
OWN = b"HTTP/1.1 299 Own\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
BOMB = gzip.compress(bytes(16 << 20), 9)
"""Four times what may be allocated, once it is unpacked."""

PEAK_MAX = 4 << 20
"""Bytes allocated at once by both sides of an exchange; a body of 2 GB has far more."""

DELIVERED = ("200", Verdict.DELIVERED)
THROTTLED = ("503", Verdict.THROTTLED)
FAILED = ("503", Verdict.RETRY)
MALFORMED = (FailureKind.PROTOCOL.value, Verdict.RETRY)
TOO_LARGE = (FailureKind.HEADERS_TOO_LARGE.value, Verdict.RETRY)
LATE = (FailureKind.TIMEOUT.value, Verdict.RETRY)
RESET = (FailureKind.RESET.value, Verdict.RETRY)
REFUSED = (FailureKind.CONNECT.value, Verdict.RETRY)


class SenderAndReceiver:
    """A sender over the transport at hand, and a receiver that does as it is told with the first request."""

    def __init__(self, transport: Transport, receiver: Receiver) -> None:
        self.receiver = receiver
        self._sender = HttpSender(transport)

    async def attempt(self, timeout_s: float = PATIENCE_S, body: bytes = b"{}") -> Answered | Failed:
        attempt = Attempt(
            receiver="acme.billing",
            policy=Policy(url=f"http://127.0.0.1:{self.receiver.port}/hook", timeout_s=timeout_s),
            event=Event(position=1, id="evt_1", stored_at=0.0, body=body, type="order.created"),
            sequence=1,
            ordinal=1,
            may_start=lambda: True,
            shapings=(),
        )
        outcome = await self._sender.send(attempt)
        assert isinstance(outcome, Answered | Failed)
        return outcome

    async def verdict(self, timeout_s: float = PATIENCE_S, body: bytes = b"{}") -> tuple[str, Verdict]:
        outcome = await self.attempt(timeout_s, body)
        return getattr(outcome, "error", None) or str(outcome.status), judge(outcome, NOW)

    async def next_gets_its_own(self) -> bool:
        outcome = await self.attempt()
        return isinstance(outcome, Answered) and (outcome.status, outcome.body) == (299, b"")

    def first(self, act: Callable[[Peer], Awaitable[object]]) -> None:
        """Do this with the first request that comes, and answer all others as they should be."""
        acts = chain[Callable[[Peer], Awaitable[object]]]([act], repeat(partial(Peer.answer, data=OWN)))

        async def script(peer: Peer) -> None:
            while True:
                await next(acts)(peer)

        self.receiver.plays(script)

    def says(self, data: bytes) -> None:
        """Answer the first request with these bytes, and leave the connection open."""
        self.first(partial(Peer.answer, data=data))


async def pours(before: bytes, part: bytes, peer: Peer) -> None:
    """Send that for as long as it is accepted."""
    await peer.answer(before)
    while True:
        await peer.send(part)


async def drips(before: bytes, peer: Peer) -> None:
    """Send a byte now and then, without end."""
    await peer.answer(before)
    while True:
        await peer.send(b"x")
        await asyncio.sleep(SLOW_S / 50)


async def resets(after: Callable[[Peer], Awaitable[object]], peer: Peer) -> None:
    await after(peer)
    peer.reset()


@pytest.fixture
def pair(transport: Transport, receiver: Receiver) -> SenderAndReceiver:
    return SenderAndReceiver(transport, receiver)


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Fail if more than `PEAK_MAX` was allocated at once meanwhile."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < PEAK_MAX


FRAMING = [
    (STATUS_OK + b"content-length: 1\r\n\r\nokay", DELIVERED),
    (STATUS_OK + b"content-length: 0\r\n\r\n" + OK, DELIVERED),
    (STATUS_OK + b"content-length: 0\r\n\r\n\r\n\r\n" + OK, DELIVERED),
    (STATUS_OK + b"content-length: 0\r\n\r\nHTTP/1.1 4", DELIVERED),
    (CHUNKED + b"2\r\nok\r\n0\r\n\r\n" + OK, DELIVERED),
    (CHUNKED + b"-2\r\nok\r\n0\r\n\r\n", DELIVERED),
    (CHUNKED + b"fffffffffffffffff\r\nok\r\n", DELIVERED),
    (CHUNKED + b"2\nok\n0\n\n", DELIVERED),
    (b"HTTP/1.1 204 No\r\ncontent-length: 40\r\n\r\n" + OK, ("204", Verdict.DELIVERED)),
    (b"HTTP/1.1 304 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", ("304", Verdict.RETRY)),
    (STATUS_OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok", MALFORMED),
    (STATUS_OK + b"content-length: 2\r\ncontent-length: 2\r\n\r\nok", MALFORMED),
    (STATUS_OK + b"content-length: 2, 3\r\n\r\nok", MALFORMED),
    (STATUS_OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", MALFORMED),
    (STATUS_OK + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n2\r\nok\r\n0\r\n\r\n", MALFORMED),
    (STATUS_OK + b"content-length: -2\r\n\r\nok", MALFORMED),
    (STATUS_OK + b"content-length: +2\r\n\r\nok", MALFORMED),
    (STATUS_OK + b"content-length: 0x2\r\n\r\nok", MALFORMED),
    (STATUS_OK + b"content-length: 2.0\r\n\r\nok", MALFORMED),
    (STATUS_OK + b"content-length:\r\n\r\nok", MALFORMED),
    (STATUS_OK + b"content-length: 18446744073709551616\r\n\r\nok", MALFORMED),
    (STATUS_OK + b"content-length: 1%b\r\n\r\nok" % (b"0" * 30), MALFORMED),
]
STATUS_LINES = [
    (b"<html>hello</html>", MALFORMED),
    (b"Hello", MALFORMED),
    (b"\r\n" + OK, MALFORMED),
    (b"http/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (b"HTTP/0.9 200 OK\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (b"HTTP/1.2 200 OK\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (b"HTTP/2 200 OK\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (b"HTTP/1.1 2000 OK\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (b"HTTP/1.1 000 OK\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (b"HTTP/1.1 999 OK\r\ncontent-length: 0\r\n\r\n", ("999", Verdict.RETRY)),
    (b"HTTP/1.1 200 OK\ncontent-length: 0\n\n", MALFORMED),
    (b"HTTP/1.1 200 OK\rcontent-length: 0\r\r", MALFORMED),
    (b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n" + OK, MALFORMED),
    (b"HTTP/1.1 100 Continue\r\ncontent-length: 40\r\n\r\n" + OK, DELIVERED),
    (INTERIM * 17 + OK, MALFORMED),
    (INTERIM * 10_000 + OK, MALFORMED),
    (b"HTTP/1.1 200 \xff\xfe\xc3\x28\r\ncontent-length: 0\r\n\r\n", DELIVERED),
    (b"HTTP/1.1 2\xff0 OK\r\ncontent-length: 0\r\n\r\n", MALFORMED),
]
HEADERS = [
    (STATUS_OK + b"x: \xff\xfe\xc3\x28\r\ncontent-length: 0\r\n\r\n", DELIVERED),
    (STATUS_OK + b"\xffx: y\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (STATUS_OK + b"x: \x00\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (STATUS_OK + b"x: \x1b[2J\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (STATUS_OK + b"x: a\nb: c\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (STATUS_OK + b"x: a\rb: c\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (STATUS_OK + b"x: a\r\n folded\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (STATUS_OK + b"content-length : 0\r\n\r\n", MALFORMED),
    (STATUS_OK + b"nonsense\r\ncontent-length: 0\r\n\r\n", MALFORMED),
    (STATUS_OK + b"x: y\r\n" * (HEADERS_MAX - 1) + b"content-length: 0\r\n\r\n", DELIVERED),
    (STATUS_OK + b"x: y\r\n" * HEADERS_MAX + b"content-length: 0\r\n\r\n", TOO_LARGE),
    (STATUS_OK + b"x: %b\r\n\r\n" % (b"y" * (HEAD_MAX - 21)), TOO_LARGE),
]


@pytest.mark.parametrize("table", [FRAMING, STATUS_LINES, HEADERS], ids=["framing", "status", "headers"])
async def test_each_answer_has_its_outcome_and_the_next_request_gets_its_own_answer(
    pair: SenderAndReceiver, table: list[tuple[bytes, tuple[str, Verdict]]]
) -> None:
    for data, expected in table:
        pair.says(data)
        assert await pair.verdict() == expected, data[:200]
        assert await pair.next_gets_its_own(), data[:200]


@pytest.mark.parametrize(
    ("text", "expected", "wait_s"),
    [
        (b"1" + b"0" * 30, THROTTLED, RETRY_AFTER_MAX_S),
        (b"9" * 60_000, THROTTLED, RETRY_AFTER_MAX_S),
        (b"1.5", THROTTLED, 2.0),
        (b"Fri, 31 Dec 9999 23:59:59 GMT", THROTTLED, RETRY_AFTER_MAX_S),
        (b"Thu, 01 Jan 1970 00:00:00 GMT", THROTTLED, 0.0),
        (b"Fri, 31 Dec 99999 23:59:59 GMT", FAILED, None),
        (b"-1", FAILED, None),
        (b"1e30", FAILED, None),
        (b"soon \xff", FAILED, None),
    ],
)
async def test_no_time_that_a_receiver_names_holds_for_more_than_a_day(
    pair: SenderAndReceiver, text: bytes, expected: tuple[str, Verdict], wait_s: float | None
) -> None:
    pair.says(b"HTTP/1.1 503 Busy\r\nretry-after: %b\r\ncontent-length: 0\r\n\r\n" % text)
    outcome = await pair.attempt()
    assert isinstance(outcome, Answered)
    assert (str(outcome.status), judge(outcome, NOW)) == expected
    assert retry_after_s(outcome, NOW) == wait_s
    assert await pair.next_gets_its_own()


@pytest.mark.parametrize(
    ("before", "part", "expected"),
    [
        (STATUS_OK + b"content-length: 2147483648\r\n\r\n", b"x" * BODY_MAX, DELIVERED),
        (STATUS_OK + b"content-encoding: gzip\r\ncontent-length: 2147483648\r\n\r\n", BOMB, DELIVERED),
        (CHUNKED, b"2\r\nok\r\n" * 1000, DELIVERED),
        (CHUNKED + b"1;", b"x" * BODY_MAX, DELIVERED),
        (CHUNKED + b"0\r\n", b"x: y\r\n" * 1000, DELIVERED),
        (STATUS_OK + b"x: ", b"x" * 10_000, TOO_LARGE),
        (STATUS_OK, b"x: y\r\n" * 100, TOO_LARGE),
        (b"", INTERIM * 100, MALFORMED),
    ],
    ids=["2 GB", "gzip", "chunks", "chunk header", "trailer", "header", "headers", "interim"],
)  # fmt: skip
async def test_an_endless_answer_takes_bounded_memory(
    pair: SenderAndReceiver, before: bytes, part: bytes, expected: tuple[str, Verdict]
) -> None:
    pair.first(partial(pours, before, part))
    with bounded():
        assert await pair.verdict() == expected
    assert await pair.next_gets_its_own()


@pytest.mark.parametrize(
    ("before", "expected"),
    [(STATUS_OK, LATE), (STATUS_OK + b"content-length: 100000\r\n\r\n", DELIVERED)],
    ids=["in the headers", "in the body"],
)
async def test_a_trickle_of_bytes_ends_at_the_deadline(
    pair: SenderAndReceiver, before: bytes, expected: tuple[str, Verdict]
) -> None:
    pair.first(partial(drips, before))
    assert await pair.verdict(timeout_s=SLOW_S) == expected
    assert await pair.next_gets_its_own()


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (Peer.first_byte, RESET),
        (Peer.request, RESET),
        (partial(Peer.answer, data=STATUS_OK + b"x: y"), RESET),
    ],
    ids=["in the request", "before the answer", "in the headers"],
)
async def test_a_reset_on_a_new_connection(
    pair: SenderAndReceiver, after: Callable[[Peer], Awaitable[object]], expected: tuple[str, Verdict]
) -> None:
    pair.first(partial(resets, after))
    assert await pair.verdict(body=b"x" * 262_144) == expected
    assert await pair.next_gets_its_own()


async def test_a_connection_that_ends_before_the_request_is_written(
    pair: SenderAndReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def short_lived(*args: Any, **options: Any) -> tuple[asyncio.Transport, asyncio.Protocol]:
        transport, protocol = await connect(*args, **options)
        transport.abort()
        return transport, protocol

    with monkeypatch.context() as patch:
        patch.setattr(loop, "create_connection", short_lived)
        assert await pair.verdict() == RESET
    pair.receiver.answers(OWN)
    assert await pair.next_gets_its_own()


async def test_a_reset_before_the_connection_is_accepted(pair: SenderAndReceiver) -> None:
    """A listener that is closed resets what it never accepted; then nothing listens at all."""
    port = pair.receiver.port
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        pair.receiver.port = listener.getsockname()[1]
        attempt = asyncio.create_task(pair.verdict())
        await until(lambda: bool(select.select([listener], [], [], 0)[0]))
    assert await attempt in (RESET, REFUSED)
    assert await pair.verdict() == REFUSED
    pair.receiver.port = port
    pair.receiver.answers(OWN)
    assert await pair.next_gets_its_own()
