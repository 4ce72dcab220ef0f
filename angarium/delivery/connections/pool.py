"""Connections kept between requests, and how many there may be.

A connection is kept under everything that its identity rests on: the receiver, scheme, host, port and the
address that was judged; the TLS settings are one context a pool. So a name whose address changes, or that
shares an address with another name, never gets somebody else's connection; and what a host still sends after
one receiver's answer never reaches another receiver (docs/decisions/connections-of-one-receiver.md). What was
idle last is used first, and what was idle longest goes first: when it has rested too long, or when room is
needed.

Bounds count all receivers of a host together. Where one is reached an attempt waits in line, under its own
deadline; each connection that closes, or that comes to rest and is the receiver's own, lets the first of the
line try again. One that comes to rest while the first waits for another is closed.
"""

import asyncio
import ssl
from collections import deque
from typing import NamedTuple

from msgspec import Struct

from angarium.delivery.http1 import Connection, Exchange

EXPIRED_AT_ONCE = 2
"""Exchanges that expire in one turn of the event loop; each takes 0.3 ms, with all that comes of it."""


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds of a pool. `per_host_max` counts a host at one address, all its receivers together.

    Receivers of one host wait for each other once so many attempts hang there, all others go on.
    """

    connections_max: int = 16_384
    per_host_max: int = 4096
    idle_s: float = 30.0


DEFAULT_LIMITS = Limits()


class Key(NamedTuple):
    """Under what a connection is kept."""

    receiver: str
    scheme: str
    host: str
    port: int
    address: str


Place = tuple[str, str, int, str]
"""A key without its receiver: where the connections of one host count together."""

Line = dict[asyncio.Future[None], Key | None]
"""Who waits, in order, and for whose connection (None: only a new one will do).

It is a dict, so that leaving it in the middle costs nothing.
"""


class _Host:
    """The connections to one host at one address, and who waits for one."""

    __slots__ = ("idle", "line", "open_count", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.open_count = 0
        self.idle: dict[Connection, None] = {}
        self.line: Line = {}


class _Group:
    """The connections of one receiver there; the owner that they report to."""

    __slots__ = ("host", "idle", "key", "open_count", "pool")

    def __init__(self, pool: "Pool", key: Key, host: _Host) -> None:
        self.pool = pool
        self.key = key
        self.host = host
        self.open_count = 0
        self.idle: dict[Connection, None] = {}

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
        self._hosts: dict[Place, _Host] = {}
        self._groups: dict[Key, _Group] = {}
        self._all: set[Connection] = set()
        self._idle: dict[Connection, tuple[_Group, float]] = {}
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
        """The receiver's kept connection that was used last, if there is one."""
        group = self._groups.get(key)
        while group is not None and group.idle:
            connection, _ = group.idle.popitem()
            del group.host.idle[connection]
            del self._idle[connection]
            if connection.usable:
                return connection
        return None

    async def room(self, key: Key, *, fresh: bool) -> Connection | None:
        """Wait until `connect` is within the bounds, and call it with no await in between.

        Without `fresh`, a connection that came to rest meanwhile does as well, and is returned.
        """
        wanted = None if fresh else key
        while True:
            kept = None if fresh else self.take(key)
            if kept is not None or self._emptied is not None:
                return kept
            host = self._hosts.get(key[1:])
            if host is not None and host.open_count >= self._limits.per_host_max:
                await self._stand_in(host.line, wanted, next(iter(host.idle), None))
            elif len(self._all) >= self._limits.connections_max:
                await self._stand_in(self._line, wanted, next(iter(self._idle), None))
            else:
                return None

    async def connect(self, key: Key) -> Connection:
        """A new connection. Raises OSError, among them ssl.SSLError; the caller bounds the time."""
        if self._emptied is not None:
            raise ConnectionAbortedError("the transport is closed")
        group = self._groups.get(key) or self._new_group(key)
        connection = Connection(group, self._loop)
        self._all.add(connection)
        group.open_count += 1
        group.host.open_count += 1
        tls, name = (self._tls, key.host) if key.scheme == "https" else (None, None)
        try:
            await self._loop.create_connection(
                lambda: connection, key.address, key.port, ssl=tls, server_hostname=name
            )
        except BaseException:
            connection.abort()
            self.closed(group, connection)
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

    def rest(self, group: _Group, connection: Connection) -> None:
        """Take back a connection that is fit for another exchange of the receiver's."""
        line = group.host.line or self._line
        if line and next(iter(line.values())) != group.key:
            connection.abort()  # The first of the line gets its room, once it is closed.
            return
        now = self._loop.time()
        group.idle[connection] = None
        group.host.idle[connection] = None
        self._idle[connection] = (group, now)
        if line:
            _call_next(line)
        if self._sweeper is None:
            self._sweeper = self._loop.call_at(now + self._limits.idle_s, self._sweep)

    def closed(self, group: _Group, connection: Connection) -> None:
        """A connection is gone, or was never made: its room is free."""
        if connection not in self._all:
            return
        host = group.host
        self._all.remove(connection)
        group.open_count -= 1
        host.open_count -= 1
        self._retire(group, connection)
        _call_next(host.line)
        _call_next(self._line)
        if not group.open_count:
            del self._groups[group.key]
        if not host.open_count and not host.line:
            del self._hosts[host.place]
        if self._emptied is not None and not self._all and not self._emptied.done():
            self._emptied.set_result(None)

    async def _stand_in(self, line: Line, wanted: Key | None, idle: Connection | None) -> None:
        """Wait for a turn; a connection that rests elsewhere makes room for it."""
        if idle is not None:
            self._retire(self._idle[idle][0], idle)
            idle.abort()
        waiter = self._loop.create_future()
        line[waiter] = wanted
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

    def _new_group(self, key: Key) -> _Group:
        place = key[1:]
        host = self._hosts.get(place) or self._hosts.setdefault(place, _Host(place))
        return self._groups.setdefault(key, _Group(self, key, host))

    def _retire(self, group: _Group, connection: Connection) -> None:
        """No longer to be taken."""
        group.idle.pop(connection, None)
        group.host.idle.pop(connection, None)
        self._idle.pop(connection, None)

    def _sweep(self) -> None:
        """Close what has rested too long, and come again when the next one will have."""
        now = self._loop.time()
        self._sweeper = None
        for connection, (group, since) in list(self._idle.items()):
            if since + self._limits.idle_s > now:
                self._sweeper = self._loop.call_at(since + self._limits.idle_s, self._sweep)
                break
            self._retire(group, connection)
            connection.abort()


def _call_next(line: Line) -> None:
    """Let the first of the line try again."""
    while line:
        waiter = next(iter(line))
        del line[waiter]
        if not waiter.done():
            waiter.set_result(None)
            return
