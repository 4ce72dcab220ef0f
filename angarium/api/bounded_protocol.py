"""The protocol of uvicorn, with bounds that it lacks.

uvicorn waits for a head without limit, accepts any number of headers of any length, and closes the connection
while a client is still sending, so that the client sees a reset instead of the answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from uvicorn._types import (
    ASGI3Application,
    ASGIReceiveCallable,
    ASGISendCallable,
    ASGISendEvent,
    HTTPResponseStartEvent,
    Scope,
)
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from angarium.api.problems import MEDIA_TYPE, ProblemRaised, unavailable
from angarium.rate_limited_log import RateLimitedLog

HEAD_TIMEOUT_S = 10.0
"""Time for the head of a request, from its first byte."""
HEAD_MAX = 64 << 10
HEADERS_MAX = 128
PIPELINED_MAX = 64
CONNECTIONS_MAX = 4096
STALLED_MAX_S = 10.0
"""Time for a client to read the 48 KiB that make room for more of an answer."""
LINGER_MAX_S = 2.0
LINGER_BYTES_MAX = 16 << 20
"""Bytes of an unwanted body that are read and dropped, so that its sender sees the answer."""

Send = Callable[[Any], Awaitable[None]]
"""The `send` of ASGI, of which uvicorn and Litestar each have a type."""


_full = RateLimitedLog(logging.getLogger(__name__), "api.connections_full")
_invalid = RateLimitedLog(logging.getLogger(__name__), "api.invalid_request")


class _ProtocolLog(logging.Logger):
    """uvicorn's log of a connection, whose lines a client without a token could cause without limit."""

    def __init__(self) -> None:
        super().__init__("uvicorn.error", logging.WARNING)
        self.parent = logging.getLogger("uvicorn.error")

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Count a request that cannot be read; one line a second says how many there were."""
        _invalid(why=str(msg))


_protocol_log = _ProtocolLog()


class _HeadTooLarge(Exception):
    """A head beyond its bounds."""


class _CancellableApp:
    """The application for one request, which is cancelled if the process has to end.

    uvicorn would log a traceback for that, and answer 500.
    """

    def __init__(
        self, connection: "BoundedProtocol", cycle: RequestResponseCycle, app: ASGI3Application
    ) -> None:
        self._connection = connection
        self._cycle = cycle
        self._app = app

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        cycle = self._cycle
        try:
            await self._app(scope, receive, _Send(self._connection, cycle))
        except asyncio.CancelledError:
            if cycle.response_started:
                cycle.disconnected = True  # Then uvicorn expects no more of the answer.
                cycle.transport.close()
            else:
                await send_problem(send, unavailable("the process is stopping; send it again"))


class _Send:
    """The `send` of one request, which can also send a whole answer at once.

    An answer that begins before the body is read says that the connection ends with it.
    """

    __slots__ = ("_connection", "_cycle")

    def __init__(self, connection: "BoundedProtocol", cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle

    def __call__(self, message: ASGISendEvent) -> Awaitable[None]:
        if message["type"] == "http.response.start" and self._cycle.more_body and self._cycle.keep_alive:
            return self._start_last(message)
        return self._cycle.send(message)

    async def _start_last(self, start: HTTPResponseStartEvent) -> None:
        """Begin the last answer. `keep_alive` stays: uvicorn would close before the rest is read."""
        cycle = self._cycle
        self._connection.ends = True
        headers = [*start.get("headers", []), (b"connection", b"close")]
        await cycle.send({**start, "headers": headers})
        cycle.keep_alive = True

    async def whole(self, status: int, headers: Iterable[tuple[bytes, bytes]], content: bytes) -> None:
        """Send a response in one write. uvicorn makes two, and looks for characters that no header has."""
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        lines = [b"%b: %b\r\n" % each for each in (*cycle.default_headers, *headers)]
        self._connection.ends = self._connection.ends or cycle.more_body
        if self._connection.ends or not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(b"".join((STATUS_LINE[status], *lines, b"\r\n", content)))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


async def send_problem(send: Send, raised: ProblemRaised) -> None:
    """Send a problem."""
    content = msgspec.json.encode(raised.problem)
    await send_answer(send, raised.problem.status, MEDIA_TYPE, raised.headers, content)


async def send_answer(
    send: Send, status: int, media_type: str, extra: Mapping[str, str], content: bytes
) -> None:
    """Send a whole answer."""
    headers = [(b"content-type", media_type.encode()), (b"content-length", b"%d" % len(content))]
    headers += [(name.encode(), value.encode()) for name, value in extra.items()]
    if isinstance(send, _Send):
        await send.whole(status, headers, content)
    else:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content, "more_body": False})


class BoundedProtocol(HttpToolsProtocol):
    """One connection of a client. `ends`: an answer has said that it is the last one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _protocol_log
        self.access_log = False  # It would show paths, which may contain a token by mistake.
        self.ends = False
        self._in_head = True
        self._head = 0
        self._idle_since = 0.0
        self._too_large = False
        self._lingering = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        if len(self.connections) > CONNECTIONS_MAX and not self._make_room():
            transport.abort()
            return
        self._timer = self.loop.call_later(HEAD_TIMEOUT_S, self._head_timed_out)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_stalled()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            self._lingering += len(data)
            if self._lingering > LINGER_BYTES_MAX:
                self.transport.abort()
            return
        if self._in_head:
            self._head += len(data)
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        # The parser holds incomplete headers back, so the bytes that came are counted here, too.
        if self._head > HEAD_MAX + len(data):
            self._too_large = True
            self.send_400_response("")
        elif self._timer is None and self.parser is not None:
            self._timer = self.loop.call_later(HEAD_TIMEOUT_S, self._head_timed_out)

    # ---- the parser's callbacks

    def on_message_begin(self) -> None:
        self._in_head, self._head_parsed = True, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._check_head_size(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._check_head_size(len(name) + len(value))
        if len(self.headers) >= HEADERS_MAX:
            self._too_large = True
            raise _HeadTooLarge
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        self._stop_timer()
        if len(self.pipeline) >= PIPELINED_MAX:
            raise _HeadTooLarge
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        if not self.pipeline and self.cycle.more_body and not self.transport.is_closing():
            self._linger()
            return
        if self.ends:
            self.transport.close()
        super().on_response_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Counts the request like an unreadable one; it is answered as if it asked for no upgrade."""
        self.logger.warning("Unsupported upgrade request.")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        super()._start_asgi_task(cycle, _CancellableApp(self, cycle, app))

    # ---- bounds

    def _make_room(self) -> bool:
        """Close the connection that has been idle for longest, so that idle ones keep no client out."""
        _full(most=CONNECTIONS_MAX)
        ours = (each for each in self.connections if isinstance(each, BoundedProtocol))
        idle = [each for each in ours if each._is_idle(self)]
        if not idle:
            return False
        min(idle, key=lambda each: each._idle_since).transport.close()
        return True

    def _is_idle(self, new: "BoundedProtocol") -> bool:
        """True if it waits for the next request of its client."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and not (
            self is new or self.pipeline or self._head or self._lingering or self.transport.is_closing()
        )

    def pause_writing(self) -> None:
        """Wait for a client that does not read its answer, for 10 s at most."""
        super().pause_writing()
        self._stop_stalled()
        self._stalled = self.loop.call_later(STALLED_MAX_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_stalled()
        super().resume_writing()

    def _stop_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _check_head_size(self, size: int) -> None:
        self._head_parsed += size
        if self._head_parsed > HEAD_MAX:
            self._too_large = True
            raise _HeadTooLarge

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_timed_out(self) -> None:
        """Close the connection of a client whose head does not arrive in time."""
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def _linger(self) -> None:
        """End our side, and discard further bytes for a while: a reset would destroy the answer."""
        self._lingering = 1
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._stop_timer()
        self._timer = self.loop.call_later(LINGER_MAX_S, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that cannot be read as a request, and close."""
        if self._too_large:
            raised = ProblemRaised(
                431, "headers", f"at most {HEADERS_MAX} headers, and {HEAD_MAX} bytes of them"
            )
        else:
            raised = ProblemRaised(400, "not-http", "this is not an HTTP/1.1 request")
        content = msgspec.json.encode(raised.problem)
        head = [
            STATUS_LINE[raised.problem.status],
            *(b"%s: %s\r\n" % each for each in self.server_state.default_headers),
            b"content-type: %s\r\ncontent-length: %d\r\n" % (MEDIA_TYPE.encode(), len(content)),
            b"connection: close\r\n\r\n",
        ]
        self.transport.write(b"".join(head) + content)
        self._linger()
