"""Connections kept between requests, and how many there may be.

A connection is kept under everything that its identity rests on: scheme, host, port and the address that
was judged; the TLS settings are one context a pool. So a name whose address changes, or that shares an
address with another name, never gets somebody else's connection. What was idle last is used first, and what
was idle longest goes first: when it has rested too long, or when room is needed.

Where a bound is reached an attempt waits in line, under its own deadline; each connection that comes to
rest or closes lets the first of the line try again.
"""

import asyncio
import ssl
from collections import deque
from typing import NamedTuple

from msgspec import Struct

from angarium.delivery.http1 import Connection, Exchange

EXPIRED_AT_ONCE = 2
"""Exchanges that expire in one turn of the event loop; each takes 0.3 ms, with all that comes of it."""

Line = dict[asyncio.Future[None], None]
"""Who waits, in order; a dict, so that leaving it in the middle costs nothing."""


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds of a pool. `per_host_max` counts a host at one address.

    Receivers of one host wait for each other once so many attempts hang there, all others go on.
    """

    connections_max: int = 16_384
    per_host_max: int = 4096
    idle_s: float = 30.0


DEFAULT_LIMITS = Limits()


class Key(NamedTuple):
    """Under what a connection is kept."""

    scheme: str
    host: str
    port: int
    address: str


class _Host:
    """The connections under one key, and who waits for one; the owner that they report to."""

    __slots__ = ("idle", "key", "line", "open_count", "pool")

    def __init__(self, pool: "Pool", key: Key) -> None:
        self.pool = pool
        self.key = key
        self.open_count = 0
        self.idle: dict[Connection, None] = {}
        self.line: Line = {}

    def write_soon(self, connection: Connection) -> None:
        self.pool.write_soon(connection)

    def expire_soon(self, connection: Connection, exchange: Exchange) -> None:
        self.pool.expire_soon(connection, exchange)

    def rest(self, connection: Connection) -> None:
        self.pool.rest(self, connection)

    def closed(self, connection: Connection) -> None:
        self.pool.closed(self, connection)


class Pool:
    """Keeps connections, opens new ones, and bounds both. Belongs to one event loop."""

    def __init__(self, tls: ssl.SSLContext, limits: Limits) -> None:
        self._loop = asyncio.get_running_loop()
        self._tls = tls
        self._limits = limits
        self._hosts: dict[Key, _Host] = {}
        self._all: set[Connection] = set()
        self._idle: dict[Connection, tuple[_Host, float]] = {}
        self._line: Line = {}
        self._due: list[Connection] = []
        self._expired: deque[tuple[Connection, Exchange]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None

    @property
    def open_count(self) -> int:
        """Connections that are open or being opened."""
        return len(self._all)

    def take(self, key: Key) -> Connection | None:
        """The kept connection that was used last, if there is one."""
        host = self._hosts.get(key)
        while host is not None and host.idle:
            connection, _ = host.idle.popitem()
            del self._idle[connection]
            if connection.usable:
                return connection
        return None

    async def room(self, key: Key, *, fresh: bool) -> Connection | None:
        """Wait until `connect` is within the bounds, and call it with no await in between.

        Without `fresh`, a connection that came to rest meanwhile does as well, and is returned.
        """
        while True:
            kept = None if fresh else self.take(key)
            if kept is not None or self._emptied is not None:
                return kept
            host = self._hosts.get(key)
            if host is not None and host.open_count >= self._limits.per_host_max:
                await self._stand_in(host.line, next(iter(host.idle), None))
            elif len(self._all) >= self._limits.connections_max:
                await self._stand_in(self._line, next(iter(self._idle), None))
            else:
                return None

    async def connect(self, key: Key) -> Connection:
        """A new connection. Raises OSError, among them ssl.SSLError; the caller bounds the time."""
        if self._emptied is not None:
            raise ConnectionAbortedError("the transport is closed")
        host = self._hosts.get(key) or self._hosts.setdefault(key, _Host(self, key))
        connection = Connection(host, self._loop)
        self._all.add(connection)
        host.open_count += 1
        tls, name = (self._tls, key.host) if key.scheme == "https" else (None, None)
        try:
            await self._loop.create_connection(
                lambda: connection, key.address, key.port, ssl=tls, server_hostname=name
            )
        except BaseException:
            connection.abort()
            self.closed(host, connection)
            raise
        return connection

    async def close(self) -> None:
        """Abort every connection and return when the last is gone; nothing can be opened after it."""
        if self._emptied is None:
            self._emptied = self._loop.create_future()
        for connection in list(self._all):
            connection.abort()
        for waiter in [*self._line, *(w for host in self._hosts.values() for w in host.line)]:
            if not waiter.done():
                waiter.set_result(None)
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._all:
            await asyncio.shield(self._emptied)

    def write_soon(self, connection: Connection) -> None:
        """Let it write with all others whose time has come in this turn of the event loop."""
        if not self._due:
            self._loop.call_soon(self._write)
        self._due.append(connection)

    def expire_soon(self, connection: Connection, exchange: Exchange) -> None:
        """Let it expire in its turn: what began together ends together, and others wait for none of it."""
        if not self._expired:
            self._loop.call_soon(self._expire)
        self._expired.append((connection, exchange))

    def rest(self, host: _Host, connection: Connection) -> None:
        """Take back a connection that is fit for another exchange."""
        now = self._loop.time()
        host.idle[connection] = None
        self._idle[connection] = (host, now)
        if host.line or self._line:
            _call_next(host.line or self._line)
        if self._sweeper is None:
            self._sweeper = self._loop.call_at(now + self._limits.idle_s, self._sweep)

    def closed(self, host: _Host, connection: Connection) -> None:
        """A connection is gone, or was never made: its room is free."""
        if connection not in self._all:
            return
        self._all.remove(connection)
        host.open_count -= 1
        self._retire(host, connection)
        _call_next(host.line)
        _call_next(self._line)
        if not host.open_count and not host.line:
            del self._hosts[host.key]
        if self._emptied is not None and not self._all and not self._emptied.done():
            self._emptied.set_result(None)

    async def _stand_in(self, line: Line, idle: Connection | None) -> None:
        """Wait for a turn; a connection that rests elsewhere makes room for it."""
        if idle is not None:
            self._retire(self._idle[idle][0], idle)
            idle.abort()
        waiter = self._loop.create_future()
        line[waiter] = None
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                _call_next(line)
            raise
        finally:
            line.pop(waiter, None)

    def _write(self) -> None:
        due, self._due = self._due, []
        for connection in due:
            connection.write()

    def _expire(self) -> None:
        for _ in range(min(EXPIRED_AT_ONCE, len(self._expired))):
            connection, exchange = self._expired.popleft()
            connection.expire(exchange)
        if self._expired:
            self._loop.call_soon(self._expire)

    def _retire(self, host: _Host, connection: Connection) -> None:
        """No longer to be taken."""
        host.idle.pop(connection, None)
        self._idle.pop(connection, None)

    def _sweep(self) -> None:
        """Close what has rested too long, and come again when the next one will have."""
        now = self._loop.time()
        self._sweeper = None
        for connection, (host, since) in list(self._idle.items()):
            if since + self._limits.idle_s > now:
                self._sweeper = self._loop.call_at(since + self._limits.idle_s, self._sweep)
                break
            self._retire(host, connection)
            connection.abort()


def _call_next(line: Line) -> None:
    """Let the first of the line try again."""
    while line:
        waiter = next(iter(line))
        del line[waiter]
        if not waiter.done():
            waiter.set_result(None)
            return
