"""The transport that Angarium uses by default: our own HTTP/1.1, from the judged address to the answer.

The hot way through `post` is short: a cached verdict, a kept connection, one write, one future, one timer.
All else (resolving, waiting for room, connecting, TLS) happens in `_open`, under the same deadline.
"""

import asyncio
import ssl

from angarium.delivery.guard import Allowed, Guard
from angarium.delivery.http1 import Connection
from angarium.delivery.pool import DEFAULT_LIMITS, Key, Limits, Pool
from angarium.delivery.reach import NoAnswer, connected, default_tls, first_reached, judged
from angarium.delivery.target import Target
from angarium.delivery.transport import Failure, FailureKind, Request, Response, request_head


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
        connection = self._kept(request.target)
        try:
            if connection is None:
                connection = await self._open(request.target, deadline, fresh=False)
            outcome = await self._exchange(connection, request, wire, started_at)
            if connection.unanswered and connection.rested:
                connection = await self._open(request.target, deadline, fresh=True)
                outcome = await self._exchange(connection, request, wire, started_at)
        except NoAnswer as why:
            return Failure(kind=why.kind, detail=why.detail, latency_s=self._loop.time() - started_at)
        return outcome

    async def close(self) -> None:
        """See `Transport`."""
        await self._pool.close()

    async def _exchange(
        self, connection: Connection, request: Request, wire: bytes, started_at: float
    ) -> Response | Failure:
        until = started_at + request.timeout_s
        try:
            return await connection.start(wire, request.may_start, started_at, until)
        except BaseException:
            connection.abort()
            raise

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
        """A connection to the first address that can be reached; raises NoAnswer."""

        async def connect(address: str, until: float) -> Connection:
            key = _key(target, address)
            try:
                async with asyncio.timeout_at(until):
                    kept = await self._pool.room(key, fresh=fresh)
            except TimeoutError:
                raise NoAnswer(FailureKind.OVERLOAD, "no connection became free in time") from None
            if kept is not None:
                return kept
            where = f"{address} port {target.port}"
            return await connected(
                self._pool.connect(key), where, secure=target.scheme == "https", deadline=until
            )

        return await first_reached(await judged(self._guard, target, deadline), deadline, connect)


def _key(target: Target, address: str) -> Key:
    return Key(target.scheme, target.host, target.port, address)
