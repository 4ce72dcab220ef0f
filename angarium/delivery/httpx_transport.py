"""The transport on httpx's engine: a fallback for operators (`transport = "httpx"`), and a check on our own.

It uses httpcore, the HTTP part of httpx, without the client around it: so there are no cookies, redirects,
environment variables, content decoding or default headers that one could forget to switch off. The network
layer below it is ours, since it decides what matters. It connects only to the judged address, while name,
`Host` and TLS stay those of the target. It looks for early bytes and checks the lease in the call that writes
a request's first byte. Our own `Answer` judges all bytes before httpcore sees them, so that both
transports treat every answer alike. An exchange is one task, so a context variable holds its state.

httpcore keeps connections by scheme, host and port. As the host it gets the receiver, the name and all
addresses that were judged. So a kept connection belongs to the receiver, and leads to one of these addresses.

HTTP/2 is disabled: requests share writes there, and the lease could not be checked right before each.
"""

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import httpcore

from angarium.delivery.connections.connect import (
    NoAnswer,
    allowed_addresses,
    default_tls,
    first_reached,
    within_deadline,
)
from angarium.delivery.connections.guard import Guard
from angarium.delivery.connections.pool import DEFAULT_LIMITS, ConnectionLimits
from angarium.delivery.http_exchange.answer import Answer
from angarium.delivery.http_exchange.sockets import has_unread, has_untaken
from angarium.delivery.http_exchange.transport import (
    EARLY,
    HEAD_MAX,
    Failure,
    FailureKind,
    Request,
    Response,
    one_line,
)


class _Exchange:
    """One request in flight, what the network layer has seen of it, and the part of its answer that was read.

    With `fresh` it uses a new connection, which is not kept afterwards.
    """

    __slots__ = ("addresses", "answer", "deadline", "fresh", "hung_up", "reached", "request", "reused",
                 "sent", "spoken_to")  # fmt: skip

    def __init__(self, request: Request, addresses: tuple[str, ...], deadline: float, fresh: bool) -> None:
        self.request = request
        self.addresses = addresses
        self.deadline = deadline
        self.fresh = fresh
        self.answer = Answer()
        self.reached = self.reused = self.sent = self.hung_up = self.spoken_to = False

    @property
    def httpcore_host(self) -> str:
        """The name that httpcore gets as the host, and under which it keeps the connection."""
        own = (self.request.receiver, self.request.target.host, *sorted(self.addresses))
        return "|".join((*own, "fresh") if self.fresh else own)

    def is_stale(self, failure: NoAnswer) -> bool:
        """True if a kept connection had died, or had sent bytes before the request."""
        died = failure.kind is FailureKind.RESET and not self.answer.has_begun
        return self.reused and (died or self.spoken_to)


_current: ContextVar[_Exchange] = ContextVar("exchange")


class HttpxTransport:
    """A `Transport` that belongs to the event loop in which it is used; it has no bound per host."""

    def __init__(
        self, guard: Guard, *, tls: ssl.SSLContext | None = None, limits: ConnectionLimits = DEFAULT_LIMITS
    ) -> None:
        self._guard = guard
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls or default_tls(),
            max_connections=limits.connections_max,
            keepalive_expiry=limits.idle_s,
            network_backend=_Network(),
        )

    async def post(self, request: Request) -> Response | Failure:
        """See `Transport`."""
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        try:
            answer = await self._deliver(request, started_at + request.timeout_s)
        except NoAnswer as why:
            return Failure(
                kind=why.kind, detail=why.detail, latency_s=loop.time() - started_at,
                unreached=why.kind in (FailureKind.RESOLVE, FailureKind.CONNECT),
            )  # fmt: skip
        return answer.response(loop.time() - started_at)

    async def close(self) -> None:
        """See `Transport`."""
        await self._pool.aclose()

    async def _deliver(self, request: Request, deadline: float) -> Answer:
        """The answer of an exchange, or of a second one if the first met a dead connection."""
        addresses = await allowed_addresses(self._guard, request.target, request.receiver, deadline)
        for fresh in (False, True):
            exchange = _Exchange(request, addresses, deadline, fresh)
            token = _current.set(exchange)
            try:
                await self._run(exchange)
                return exchange.answer
            except NoAnswer as why:
                failure = why
            finally:
                _current.reset(token)
                exchange.answer.release()
            if not exchange.is_stale(failure):
                break
        raise failure

    async def _run(self, exchange: _Exchange) -> None:
        try:
            async with asyncio.timeout_at(exchange.deadline):
                await self._ask(exchange)
        except TimeoutError:
            if not exchange.reached:
                raise NoAnswer(FailureKind.OVERLOAD, "no connection became free in time") from None
            if not exchange.answer.headed:
                raise NoAnswer(FailureKind.TIMEOUT, "no answer came in time") from None
        except httpcore.LocalProtocolError as error:
            raise ValueError(f"headers: {error}") from None
        except (httpcore.NetworkError, httpcore.RemoteProtocolError) as error:
            broken = exchange.hung_up or isinstance(error, httpcore.NetworkError)
            if not exchange.answer.headed:
                kind = FailureKind.RESET if broken else FailureKind.PROTOCOL
                raise NoAnswer(kind, one_line(error)) from None

    async def _ask(self, exchange: _Exchange) -> None:
        request = exchange.request
        target = request.target
        url = httpcore.URL(
            scheme=target.scheme, host=exchange.httpcore_host, port=target.port, target=target.path
        )
        given = [line.split(b": ", 1) for line in request.lines]
        headers = [(b"host", target.authority.encode()), *((name, value) for name, value in given)]
        content = request.body if request.method == "POST" else None
        async with self._pool.stream(request.method, url, headers=headers, content=content) as response:
            async for _ in response.aiter_stream():
                pass  # `Answer` has judged and kept the body already; there is nothing left to do with it.


class _Network(httpcore.AsyncNetworkBackend):
    """Connects to the judged addresses of the current exchange, and ignores the host in the request."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> "_Stream":
        """See httpcore; the deadline of the exchange takes the place of `timeout`."""
        exchange = _current.get()
        exchange.reached = True

        async def connect(address: str, until: float) -> _Stream:
            where = f"{address} port {port}"
            return await within_deadline(_Stream.open(address, port), where, secure=False, deadline=until)

        stream = await first_reached(exchange.addresses, exchange.deadline, connect)
        stream.spoiled = exchange.fresh
        return stream


class _Reader(asyncio.StreamReader):
    """Counts the bytes that arrive, to see whether all have been read."""

    fed = 0

    def feed_data(self, data: Any) -> None:
        self.fed += len(data)
        super().feed_data(data)


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that the current exchange writes and reads; a `spoiled` one is not used again."""

    def __init__(self, reader: _Reader, writer: asyncio.StreamWriter, where: str) -> None:
        self._reader = reader
        self._writer = writer
        self._where = where
        self._fd = writer.get_extra_info("socket").fileno()
        self._taken = 0
        self._used = self._secure = self.spoiled = False

    @classmethod
    async def open(cls, address: str, port: int) -> "_Stream":
        """Connect; raises OSError."""
        loop = asyncio.get_running_loop()
        reader = _Reader(limit=HEAD_MAX, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.create_connection(lambda: protocol, address, port)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop), f"{address} port {port}")

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "_Stream":
        """See httpcore, except that the name is the target's."""
        exchange = _current.get()
        handshake = self._writer.start_tls(ssl_context, server_hostname=exchange.request.target.host)
        try:
            await within_deadline(handshake, self._where, secure=True, deadline=exchange.deadline)
        except BaseException:
            self._writer.transport.abort()
            raise
        self._secure = True
        return self

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """See httpcore. The first write of an exchange checks the lease in the same call."""
        exchange = _current.get()
        exchange.reached = True
        if not exchange.sent:
            exchange.reused, self._used = self._used, True
            while True:
                if not self._has_unread(exchange):
                    break
                await asyncio.sleep(0)
            if not exchange.request.may_start():
                raise NoAnswer(FailureKind.LEASE, "the lease expired before the first byte was sent")
            exchange.sent = True
        if self._writer.is_closing():  # Then uvloop's transport raises RuntimeError; asyncio's drops it.
            raise httpcore.WriteError("the receiver closed the connection at once")
        self._writer.write(buffer)
        try:
            await self._writer.drain()
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error
        if self._reader.fed > self._taken:
            self.spoiled = True  # The answer came before the request was written: it counts, and is the last.

    def _has_unread(self, exchange: _Exchange) -> bool:
        """True if bytes wait that only the event loop can read; raises NoAnswer if it did."""
        if self._writer.is_closing():
            return False
        try:
            unread = has_unread(self._fd)
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error
        if self._reader.fed > self._taken or (unread and not self._secure):
            exchange.spoken_to = True
            raise NoAnswer(FailureKind.PROTOCOL, EARLY)
        return unread

    def _is_written(self) -> bool:
        """True if the whole request has left, including bytes below TLS."""
        if self._writer.is_closing() or self._writer.transport.get_write_buffer_size():
            return False
        return not has_untaken(self._fd)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """See httpcore, which gets only answers, and nothing after the end of one."""
        exchange = _current.get()
        if exchange.answer.over:
            return b""
        try:
            data = await self._reader.read(max_bytes)
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error
        self._taken += len(data)
        exchange.hung_up = not data
        if data:
            over = exchange.answer.feed(data)
            self.spoiled |= over and not (exchange.answer.reusable and self._is_written())
        if exchange.answer.fault is not None:
            raise NoAnswer(*exchange.answer.fault)
        return data

    async def aclose(self) -> None:
        """See httpcore."""
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()

    def get_extra_info(self, info: str) -> Any:
        """See httpcore, which asks whether an idle connection should be closed, and whether TLS chose h2."""
        if info == "is_readable":
            ended = self._reader.at_eof() or self._reader.exception() is not None
            return ended or self.spoiled or self._reader.fed > self._taken
        return self._writer.get_extra_info(info)
