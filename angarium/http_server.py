"""A small HTTP/1.1 server: for `angarium listen`, the receivers of the demo and a node's monitor.

It is not meant for the open network: it has no TLS and no routes, and one function that answers. The requests
of one connection are answered one after the other, bounds are fixed, and anything that is not HTTP ends the
connection. If a thousand requests come at once, one is answered in each turn of the event loop. Meanwhile
nothing more is read, and nothing is answered while the client does not read its answers.
"""

import asyncio
import errno
import socket
import struct
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import httptools
from msgspec import Struct

HEAD_MAX = 64 << 10
BODY_MAX = 16 << 20
PIECE_BYTES = 4 << 10
WAITING_MAX = 64
"""Requests of a connection that are parsed and wait: one read may hold thousands, and parsing takes long."""


class Received(Struct, frozen=True):
    """One request. Header names are in lower case; of a repeated header the last value counts."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Reply(Struct, frozen=True):
    """An answer, sent `delay_s` after the request came."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    delay_s: float = 0.0


class Reset(Struct, frozen=True):
    """No answer: the connection is reset."""


Pending = asyncio.Future[Reply]
"""An answer that is not known yet. It never fails: who promises it answers an error as well."""

Answer = Callable[[Received], Reply | Reset | Pending]


def why_not_bound(error: OSError) -> str:
    """The reason why an address cannot be listened on; asyncio's own text repeats the address."""
    if error.errno == errno.EADDRINUSE:
        return "the address is in use"
    return error.strerror or str(error)


async def serve(host: str, port: int, answer: Answer, connections_max: int | None = None) -> asyncio.Server:
    """Listen; port 0 takes a free one. Raises OSError if the address is taken or not ours.

    Above `connections_max`, a new connection ends the one whose last request is the oldest: a client that
    opens connections and asks nothing neither uses up the descriptors nor keeps others out.
    """
    latest = None if connections_max is None else _LatestConnections(connections_max)
    return await asyncio.get_running_loop().create_server(lambda: _Connection(answer, latest), host, port)


async def serve_on(bound: socket.socket, answer: Answer) -> asyncio.Server:
    """Serve on a socket that is bound to its address already, with no listener so far."""
    return await asyncio.get_running_loop().create_server(lambda: _Connection(answer), sock=bound)


async def serve_connected(connected: socket.socket, answer: Answer) -> asyncio.Transport:
    """Serve the one client at the other end of a connected socket."""
    transport, _ = await asyncio.get_running_loop().create_connection(
        lambda: _Connection(answer), sock=connected
    )
    return transport


class _TooLarge(Exception):
    pass


class _LatestConnections:
    """The open connections of a server, at most `most`, in the order of their last requests."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[_Connection, None] = {}

    def used(self, connection: "_Connection") -> None:
        """Note that a connection was made, or has asked for something."""
        self._open.pop(connection, None)
        self._open[connection] = None
        if len(self._open) > self._most:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.end()

    def lost(self, connection: "_Connection") -> None:
        """Forget a connection that has ended."""
        self._open.pop(connection, None)


class _Connection(asyncio.Protocol):
    """One client. The parser calls the methods whose names begin with `on_`."""

    def __init__(self, answer: Answer, latest: _LatestConnections | None = None) -> None:
        self._answer = answer
        self._latest = latest
        self._parser = httptools.HttpRequestParser(self)
        self._held_back = 0
        self._unparsed = b""
        self._waiting: deque[tuple[Received | Reply, bool]] = deque()
        self._delayed = False
        self._clogged = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it.
        if self._latest is not None:
            self._latest.used(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._latest is not None:
            self._latest.lost(self)

    def end(self) -> None:
        """End the connection; what is not sent yet is lost."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        self._parse()
        self._answer_next()
        if self._waiting:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._clogged = True

    def resume_writing(self) -> None:
        self._clogged = False
        self._answer_next()

    def _parse(self) -> None:
        """Parse what was read, as far as requests may wait."""
        parsed = 0
        while parsed < len(self._unparsed) and len(self._waiting) < WAITING_MAX:
            problem = self._feed(self._unparsed[parsed : parsed + PIECE_BYTES])
            parsed += PIECE_BYTES
            if problem is not None:
                self._waiting.append((Reply(problem, (("connection", "close"),)), False))
                parsed = len(self._unparsed)
        self._unparsed = self._unparsed[parsed:]

    def _feed(self, piece: bytes) -> HTTPStatus | None:
        """Parse bytes; returns the status of an error, if any. The parser holds incomplete headers back."""
        self._held_back += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserCallbackError:  # Callbacks raise only `_TooLarge`.
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return HTTPStatus.BAD_REQUEST
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE if self._held_back > HEAD_MAX else None

    # ---- the parser's callbacks

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._head_left, self._body_left = HEAD_MAX, BODY_MAX

    def on_url(self, part: bytes) -> None:
        self._check_head_size(len(part))
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self._check_head_size(len(name) + len(value))
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def _check_head_size(self, size: int) -> None:
        self._held_back = 0
        self._head_left -= size
        if self._head_left < 0:
            raise _TooLarge

    def on_body(self, part: bytes) -> None:
        self._held_back = 0
        self._body_left -= len(part)
        if self._body_left < 0:
            raise _TooLarge
        self._body.append(part)

    def on_message_complete(self) -> None:
        method, path = self._parser.get_method().decode("latin-1"), self._url.decode("latin-1")
        received = Received(method, path, self._headers, b"".join(self._body))
        self._waiting.append((received, self._parser.should_keep_alive()))
        if self._latest is not None:
            self._latest.used(self)

    # ---- answers, in the order of the requests

    def _answer_next(self) -> None:
        if not self._waiting or self._delayed or self._clogged or self._transport.is_closing():
            return
        request, stays = self._waiting.popleft()
        reply = self._answer(request) if isinstance(request, Received) else request
        if isinstance(reply, Reset):
            self._reset()
        elif isinstance(reply, asyncio.Future):
            self._delayed = True
            reply.add_done_callback(lambda known: self._send_pending(known, stays))
        elif reply.delay_s:
            self._delayed = True
            asyncio.get_running_loop().call_later(reply.delay_s, self._send, reply, stays)
        else:
            self._send(reply, stays)

    def _send_pending(self, known: Pending, stays: bool) -> None:
        if not known.cancelled():  # Only the end of this process cancels it.
            self._send(known.result(), stays)

    def _send(self, reply: Reply, stays: bool) -> None:
        self._delayed = False
        if self._transport.is_closing():
            return
        self._transport.write(_encode(reply))
        if not stays:
            self._transport.close()
            return
        if not self._waiting:
            self._parse()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._answer_next)
        else:
            self._transport.resume_reading()

    def _reset(self) -> None:
        """Reset the connection: closing with unsent data and no linger time makes the kernel send a RST."""
        raw: socket.socket = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


def _encode(reply: Reply) -> bytes:
    phrase = next((each.phrase for each in HTTPStatus if each == reply.status), "")
    headers = (*reply.headers, ("content-length", str(len(reply.body))))
    lines = [f"HTTP/1.1 {reply.status} {phrase}", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1") + reply.body
