"""Receivers on a real socket that record all requests, and answer as a test tells them to.

One server stands for any number of receivers, each with a path of its own.
"""

import asyncio
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from http import HTTPStatus
from types import TracebackType
from typing import Self, cast

import httptools
from msgspec import Struct

from tests.support.fleet.records import Arrival

HOST = "127.0.0.1"
LOOK_S = 0.01


class Reply(Struct, frozen=True):
    """An answer, `delay_s` after the request came."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    delay_s: float = 0.0
    body: bytes = b""


class Held(Struct, frozen=True):
    """The answer 200, as soon as the test says so."""

    released: asyncio.Event


class Hang(Struct, frozen=True):
    """No answer; the connection stays."""


class Reset(Struct, frozen=True):
    """No answer; the connection is reset."""


class Request(Struct, frozen=True):
    """A request as it came; names of headers are in lower case."""

    headers: dict[str, str]
    body: bytes


Answer = Reply | Held | Hang | Reset
Manner = Callable[[int], Answer]
"""A receiver's behaviour: its answer to the nth request, from 1 on."""


class Sink:
    """`async with Sink() as sink: sink.url("acme.billing")`.

    `arrivals`, `latest` (the last request, whole) and `unanswered` (how many) are by receiver, `total` counts
    all requests, and `onlooker` is shown each of them. `manners` are for those receivers that do not simply
    answer 200; `proofs` answer handshakes, which are counted in `asked`. `whose` tells the node at a port of
    the other side; it is asked once a connection. `late_s` is the longest that our event loop kept a timer
    waiting: so late an arrival may have been noted.
    """

    def __init__(self) -> None:
        self.arrivals: defaultdict[str, list[Arrival]] = defaultdict(list)
        self.latest: dict[str, Request] = {}
        self.unanswered: Counter[str] = Counter()
        self.total = 0
        self.onlooker: Callable[[str, Request], None] = lambda receiver, request: None
        self.manners: dict[str, Manner] = {}
        self.proofs: dict[str, Manner] = {}
        self.asked: Counter[str] = Counter()
        self.whose: Callable[[int], str] = lambda _: ""
        self.connections: set[asyncio.Transport] = set()
        self.late_s = 0.0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), HOST, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._watch = asyncio.create_task(self._watch_lateness())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._watch.cancel()
        for transport in self.connections:
            transport.abort()

    def url(self, receiver: str) -> str:
        return f"http://{HOST}:{self.port}/{receiver}"

    async def _watch_lateness(self) -> None:
        while True:
            due = time.monotonic() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self.late_s = max(self.late_s, time.monotonic() - due)

    def take(self, receiver: str, request: Request, by: str) -> Answer:
        """Write a request down, and say what is to be answered."""
        if "webhook-id" not in request.headers:
            self.asked[receiver] += 1
            prove = self.proofs.get(receiver)
            return Reply() if prove is None else prove(self.asked[receiver])
        arrivals, headers = self.arrivals[receiver], request.headers
        self.latest[receiver] = request
        manner = self.manners.get(receiver)
        answer = Reply() if manner is None else manner(len(arrivals) + 1)
        self.total += 1
        self.onlooker(receiver, request)
        arrivals.append(Arrival(
            at=time.monotonic(),
            sequence=int(headers.get("angarium-sequence", "0").partition("-")[0]),  # The first of a batch.
            event_id=headers["webhook-id"],
            attempt=int(headers["angarium-attempt"]),
            status=_status(answer),
            in_flight=self.unanswered[receiver],
            by=by,
        ))  # fmt: skip
        self.unanswered[receiver] += 1
        return answer


class _Connection(asyncio.Protocol):
    """One connection of a node; the parser calls the methods whose names begin with `on_`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._parser = httptools.HttpRequestParser(self)
        self._unanswered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._sink.connections.add(self._transport)
        self._by = self._sink.whose(transport.get_extra_info("peername")[1])

    def connection_lost(self, error: Exception | None) -> None:
        self._sink.connections.discard(self._transport)
        if self._unanswered:
            self._sink.unanswered[self._receiver] -= 1

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path = b""
        self._headers: dict[str, str] = {}
        self._body = b""

    def on_url(self, part: bytes) -> None:
        self._path += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        self._receiver = self._path.decode().removeprefix("/")
        self._unanswered = True
        match self._sink.take(self._receiver, Request(self._headers, self._body), self._by):
            case Reply(delay_s=0) as reply:
                self._answer(reply)
            case Reply(delay_s=delay_s) as reply:
                asyncio.get_running_loop().call_later(delay_s, self._answer, reply)
            case Held(released=released):
                self._waiting = asyncio.create_task(self._answer_once(released))
            case Reset():
                self._reset()
            case Hang():
                pass

    def _answer(self, reply: Reply) -> None:
        if self._transport.is_closing():
            return
        self._unanswered = False
        self._sink.unanswered[self._receiver] -= 1
        self._transport.write(_encode(reply))

    async def _answer_once(self, released: asyncio.Event) -> None:
        await released.wait()
        self._answer(Reply())

    def _reset(self) -> None:
        """Closing with no time to linger makes the kernel send a RST."""
        raw: socket.socket = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


def _status(answer: Answer) -> int | None:
    """The status of the answer."""
    match answer:
        case Reply(status=status):
            return status
        case Held():
            return Reply().status
        case Hang() | Reset():
            return None


def _encode(reply: Reply) -> bytes:
    status = f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"
    headers = (f"{name}: {value}" for name, value in reply.headers)
    head = "\r\n".join([status, *headers, f"content-length: {len(reply.body)}", "", ""])
    return head.encode() + reply.body
