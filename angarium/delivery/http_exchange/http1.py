"""An HTTP/1.1 connection to one judged address: one request in flight, its answer, then it is idle or closed.

It is an `asyncio.Protocol` rather than a client library: a request is sent in one write, its answer resolves
one future, its deadline is one timer, and the lease is checked in the same call that writes.

No byte that came before the request was written is taken for its answer: the same call checks the socket, and
such a byte ends the connection. Bytes that come just after it can only be from the receiver to which the
connection belongs, since a connection is kept for one receiver alone.

Requests that are started in one turn of the event loop are written at its end, one after the other: each
write wakes its receiver and, if that is on the same machine, it takes the core from the writer. This gave a
node 5 % more deliveries per second (four alternating runs each).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from angarium.delivery.http_exchange.answer import Answer
from angarium.delivery.http_exchange.sockets import has_unread, has_untaken
from angarium.delivery.http_exchange.transport import EARLY, Failure, FailureKind, Response, one_line

LARGE_BYTES_MIN = 32 * 1024
"""A request with more bytes may be answered before the receiver's machine has read all of it."""

Exchange = asyncio.Future[Response | Failure]


class ConnectionOwner(Protocol):
    """The keeper of a connection between its exchanges."""

    def write_soon(self, connection: "Http1Connection") -> None:
        """Call `connection.write` at the end of this turn of the event loop."""
        ...

    def expire_soon(self, connection: "Http1Connection", exchange: Exchange) -> None:
        """Call `connection.expire` with that exchange, once those that expired before have had their turn."""
        ...

    def keep_idle(self, connection: "Http1Connection") -> None:
        """Take back a connection whose exchange is over, and which can be used for another."""
        ...

    def closed(self, connection: "Http1Connection") -> None:
        """Forget a connection that is gone, and its descriptor with it."""
        ...


class Http1Connection(asyncio.Protocol):
    """A connection that belongs to its owner while it is idle, and otherwise to one exchange.

    - `unanswered`: it ended before one byte of the last request's answer had come.
    - `was_idle`: it was idle between two requests, and may have died unnoticed.
    - `_wire`: a request that is not written yet.
    """

    __slots__ = (
        "_aborted",
        "_answer",
        "_deadline",
        "_early",
        "_exchange",
        "_fd",
        "_large",
        "_loop",
        "_may_start",
        "_owner",
        "_secure",
        "_started_at",
        "_transport",
        "_wire",
        "unanswered",
        "was_idle",
    )  # fmt: skip

    def __init__(self, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop) -> None:
        self.was_idle = self.unanswered = False
        self._owner = owner
        self._loop = loop
        self._answer = Answer()
        self._exchange: Exchange | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._started_at = 0.0
        self._wire = b""
        self._may_start: Callable[[], bool] = bool
        self._aborted = self._early = self._large = self._secure = False
        self._fd = -1

    @property
    def is_usable(self) -> bool:
        """True if it is open, as far as that is known without writing to it."""
        return self._transport is not None and not self._transport.is_closing()

    def start(
        self, wire: bytes, may_start: Callable[[], bool], started_at: float, deadline: float
    ) -> Exchange:
        """Write a whole request soon, if it may still start then; returns the future of its answer.

        `started_at` and `deadline` are times of the loop. Cancelling the future does not end the exchange:
        a caller that gives up calls `abort`.
        """
        self._wire, self._may_start = wire, may_start
        self._started_at = started_at
        self._exchange = self._loop.create_future()
        self._deadline = self._loop.call_at(deadline, self._owner.expire_soon, self, self._exchange)
        self._owner.write_soon(self)
        return self._exchange

    def write(self) -> None:
        """Write the request that was started, unless its exchange is over or bytes have come before it."""
        if self._exchange is None:
            return
        if self._transport is None or self._transport.is_closing():
            if self._early:
                self._end_early()
            else:
                self._end("the receiver closed the connection at once")
            return
        try:
            unread = has_unread(self._fd)
        except OSError as error:  # Over TLS the socket may be gone a turn before we are told.
            self._end(one_line(f"the connection broke: {error}"))
            self.abort()
            return
        if unread and self._secure:
            self._owner.write_soon(self)  # The event loop reads first: only it can tell what the bytes hold.
        elif unread:
            self._end_early()
        elif self._may_start():
            wire, self._wire = self._wire, b""
            self._large = len(wire) > LARGE_BYTES_MIN
            self._transport.write(wire)
        else:
            self._wire = b""
            self._fail(FailureKind.LEASE, "the lease expired before the first byte was sent")
            self.was_idle = True
            self._owner.keep_idle(self)

    def abort(self) -> None:
        """Close at once, without waiting for unsent bytes or for the end of TLS."""
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    def expire(self, exchange: Exchange) -> None:
        """End an exchange whose time is over. If it has ended meanwhile, another one may be in progress."""
        if self._exchange is not exchange:
            return
        if self._answer.headed:
            self._settle(self._answer.response(self._loop.time() - self._started_at))
        else:
            how_far = "the headers did not end" if self._answer.has_begun else "no answer came"
            self._fail(FailureKind.TIMEOUT, f"{how_far} in time")
        self.abort()

    # The event loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._fd = transport.get_extra_info("socket").fileno()
        self._secure = transport.get_extra_info("ssl_object") is not None
        if self._aborted:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._exchange is None or self._wire:
            self._end_early()
            return
        try:
            over = self._answer.feed(data)
        except Exception as defect:
            if self._answer.headed:
                raise  # The status still decides; the event loop logs this.
            self._break(defect)
            self.abort()
            return
        if over:
            self._conclude()

    def eof_received(self) -> None:
        self._end("the receiver closed the connection")
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(one_line(f"the connection broke: {error}") if error else "the connection was closed")
        self._answer.release()
        self._owner.closed(self)

    def _conclude(self) -> None:
        answer = self._answer
        if answer.fault is None:
            self._settle(answer.response(self._loop.time() - self._started_at))
        else:
            self._fail(*answer.fault)
        if answer.reusable and self._is_written():
            answer.reset()
            self.was_idle = True
            self._owner.keep_idle(self)
        else:
            self.abort()

    def _is_written(self) -> bool:
        """True if the whole request has left; over TLS a part may still wait unseen."""
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return False
        return not (self._large and has_untaken(self._fd))

    def _end_early(self) -> None:
        """Close because of bytes that answer no request: they would be taken for the next answer."""
        self._early, self._wire = True, b""
        if self._exchange is not None:
            self.unanswered = True
            self._fail(FailureKind.PROTOCOL, EARLY)
        self.abort()

    def _end(self, why: str) -> None:
        """Handle the end of the input: an answer without a length is complete, any other is broken off."""
        if self._exchange is None:
            return
        self.unanswered = not self._answer.has_begun
        if self._answer.headed:
            self._settle(self._answer.response(self._loop.time() - self._started_at))
        else:
            self._fail(FailureKind.RESET, f"before the answer's headers ended, {why}")

    def _fail(self, kind: FailureKind, detail: str) -> None:
        latency_s = self._loop.time() - self._started_at
        status = self._answer.status or None
        self._settle(Failure(kind=kind, detail=detail, latency_s=latency_s, status=status))

    def _settle(self, outcome: Response | Failure) -> None:
        exchange, self._exchange = self._exchange, None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if exchange is not None and not exchange.done():
            exchange.set_result(outcome)

    def _break(self, defect: Exception) -> None:
        """End the exchange with a defect of ours, which is raised in the attempt and reported there."""
        exchange, self._exchange = self._exchange, None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if exchange is not None and not exchange.done():
            exchange.set_exception(defect)
