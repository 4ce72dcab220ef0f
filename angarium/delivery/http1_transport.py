"""The transport that Angarium uses by default: our own HTTP/1.1, from the judged address to the answer.
 The hot way through `post` is short: a cached verdict, a kept connection, one write, one future, one timer.
All else (resolving, waiting for room, connecting, TLS) happens in `_open`, under the same deadline.
"""

import asyncio
import errno
import ssl

from angarium.delivery.guard import Allowed, Guard, Refused, Unresolved
from angarium.delivery.http1 import Connection
from angarium.delivery.pool import DEFAULT_LIMITS, Key, Limits, Pool
from angarium.delivery.target import Target
from angarium.delivery.transport import Failure, FailureKind, Request, Response, one_line, request_head

ADDRESSES_MAX = 4
"""Addresses of one name that are tried in one attempt; each gets its share of the time that is left."""

_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


class _NotConnected(Exception):
    """Why there is no connection to send on: a failure but for its latency."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


def default_tls() -> ssl.SSLContext:
    """Verification against the system's authorities, TLS 1.2 or newer."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


class Http1Transport:
    """A `Transport`. To be made while the event loop runs, since it belongs to it."""

    def __init__(
        self, guard: Guard, *, tls: ssl.SSLContext | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._guard = guard
        self._pool = Pool(tls or default_tls(), limits)

    async def post(self, request: Request) -> Response | Failure:
        """See `Transport`."""
        started_at = self._loop.time()
        deadline = started_at + request.timeout_s
        wire = request_head(request) + request.body
        kept = self._kept(request.target)
        if kept is not None:
            outcome = await self._exchange(kept, request, wire, started_at)
            if not kept.unanswered:
                return outcome
        try:
            connection = await self._open(request.target, deadline, fresh=kept is not None)
        except _NotConnected as why:
            return Failure(kind=why.kind, detail=why.detail, latency_s=self._loop.time() - started_at)
        return await self._exchange(connection, request, wire, started_at)

    async def close(self) -> None:
        """See `Transport`."""
        await self._pool.close()

    async def _exchange(
        self, connection: Connection, request: Request, wire: bytes, started_at: float
    ) -> Response | Failure:
        try:
            exchange = connection.start(wire, request.may_start, started_at, started_at + request.timeout_s)
            if exchange is not None:
                return await exchange
        except BaseException:
            connection.abort()
            raise
        detail = "the lease ended before the first byte was sent"
        return Failure(kind=FailureKind.LEASE, detail=detail, latency_s=self._loop.time() - started_at)

    def _kept(self, target: Target) -> Connection | None:
        """A kept connection to an address that is allowed now."""
        verdict = self._guard.known(target, self._loop.time())
        if isinstance(verdict, Allowed):
            for address in verdict.addresses:
                connection = self._pool.take(_key(target, address))
                if connection is not None:
                    return connection
        return None

    async def _open(self, target: Target, deadline: float, *, fresh: bool) -> Connection:
        """Judge and connect, one address after the other; raises _NotConnected."""
        addresses = (await self._judged(target, deadline))[:ADDRESSES_MAX]
        for i, address in enumerate(addresses):
            now = self._loop.time()
            share = now + (deadline - now) / (len(addresses) - i)
            try:
                return await self._connect(_key(target, address), share, fresh)
            except _NotConnected as why:
                failure = why
        raise failure

    async def _judged(self, target: Target, deadline: float) -> tuple[str, ...]:
        try:
            async with asyncio.timeout_at(deadline):
                verdict = await self._guard.judge(target)
        except TimeoutError:
            raise _NotConnected(FailureKind.TIMEOUT, f"{target.host} was not resolved in time") from None
        match verdict:
            case Allowed():
                return verdict.addresses
            case Refused():
                raise _NotConnected(FailureKind.BLOCKED, verdict.detail)
            case Unresolved():
                raise _NotConnected(FailureKind.RESOLVE, verdict.detail)

    async def _connect(self, key: Key, deadline: float, fresh: bool) -> Connection:
        try:
            async with asyncio.timeout_at(deadline):
                kept = await self._pool.room(key, fresh=fresh)
        except TimeoutError:
            raise _NotConnected(FailureKind.OVERLOAD, "no connection became free in time") from None
        if kept is not None:
            return kept
        where = f"{key.address} port {key.port}"
        try:
            async with asyncio.timeout_at(deadline):
                return await self._pool.connect(key)
        except TimeoutError:
            raise _NotConnected(FailureKind.TIMEOUT, f"not connected to {where} in time") from None
        except OSError as error:
            raise _NotConnected(_kind(error, key.scheme), one_line(f"{where}: {error}")) from None


def _key(target: Target, address: str) -> Key:
    return Key(target.scheme, target.host, target.port, address)


def _kind(error: OSError, scheme: str) -> FailureKind:
    """At which stage connecting failed; a handshake that the peer breaks off is a failure of TLS."""
    if error.errno in _OURS:
        return FailureKind.OVERLOAD
    broken_off = isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)
    if isinstance(error, ssl.SSLError) or (broken_off and scheme == "https"):
        return FailureKind.TLS
    return FailureKind.CONNECT
