"""One CONNECT: the request to a proxy, and its answer, bounded to the byte.

After a 2xx, all bytes come through the tunnel. Any other answer is a refusal, whatever its body says.
"""

import asyncio
from typing import cast

from msgspec import Struct

from angarium import __version__
from angarium.delivery.connections.connect import NoAnswer
from angarium.delivery.http_exchange.answer import Answer
from angarium.delivery.http_exchange.transport import EARLY, FailureKind, Response, one_line

ANSWER_BYTES_MAX = 16 * 1024
"""Bytes of a proxy's answer up to the end of its headers, interim answers included."""

_END = b"\r\n\r\n"
_USER_AGENT = f"user-agent: Angarium/{__version__}".encode()
_REASONS = ("x-squid-error", "x-smokescreen-error", "proxy-status")
"""Headers in which proxies say why they refuse."""
_REASON_LENGTH_MAX = 120


class Refusal(Struct, frozen=True):
    """A refusal by a proxy; `why` begins with a verb, for a sentence about the proxy."""

    why: str


def connect_head(authority: str, authorization: bytes) -> bytes:
    """The bytes that ask a proxy for a tunnel; `authority` is host and port, always both."""
    where = authority.encode("ascii")
    lines = [b"CONNECT " + where + b" HTTP/1.1", b"host: " + where, _USER_AGENT]
    if authorization:
        lines.append(b"proxy-authorization: " + authorization)
    return b"\r\n".join(lines) + _END


class Tunnel(asyncio.Protocol):
    """A connection to a proxy until its answer is complete; then its transport is handed over.

    - `early`: bytes have come through the tunnel before anything was sent into it.
    """

    def __init__(self) -> None:
        self.early = False
        self.transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self._answer = Answer()
        self._unparsed = b""
        self._size = 0

    async def ask(self, head: bytes) -> Refusal | None:
        """Ask for the tunnel; None: it is open."""
        if self.transport is not None:
            self.transport.write(head)
        try:
            return await self._answered
        finally:
            self._answer.release()

    def hand_over(self) -> asyncio.Transport:
        """The transport of the open tunnel, which the caller gives another protocol with no await in between.

        Raises NoAnswer.
        """
        if self.early:
            raise NoAnswer(FailureKind.PROTOCOL, EARLY)
        if self.transport is None or self.transport.is_closing():
            raise NoAnswer(FailureKind.RESET, "the connection was closed as soon as the proxy had opened it")
        return self.transport

    def abort(self) -> None:
        """Close at once what is still open."""
        if self.transport is not None:
            self.transport.abort()

    # The event loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answered.done():
            self.early = True
            self.abort()
            return
        self._size += len(data)
        self._unparsed += data
        while not self._answered.done() and (end := self._unparsed.find(_END)) >= 0:
            head, self._unparsed = self._unparsed[: end + len(_END)], self._unparsed[end + len(_END) :]
            self._feed(head)
        if self._answered.done():
            self.early = bool(self._unparsed)
        elif self._size > ANSWER_BYTES_MAX:
            self._settle(Refusal(f"answered with headers over {ANSWER_BYTES_MAX} bytes"))

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._settle(Refusal("closed the connection before its answer was complete"))

    def _feed(self, head: bytes) -> None:
        answer = self._answer
        answer.feed(head)
        if answer.fault is not None:
            self._settle(Refusal(f"sent a {answer.fault[1]}"))
        elif answer.headed:
            self._settle(None if 200 <= answer.status < 300 else _refusal(answer.response(0.0)))

    def _settle(self, outcome: Refusal | None) -> None:
        if not self._answered.done():
            self._answered.set_result(outcome)


def _refusal(response: Response) -> Refusal:
    if response.status == 407:
        return Refusal("did not accept our user and password (407)")
    reason = next((value for name, value in response.headers if name in _REASONS), "")
    return Refusal(
        f"answered {response.status}" + f" ({one_line(reason)[:_REASON_LENGTH_MAX]})" * bool(reason)
    )
