"""Connections kept between requests, and how many there may be.

The key of a connection is its whole identity: the receiver, scheme, host, port, the address that was judged,
and the egress path: the proxy and TLS settings, with what their files hold now. So a name whose address
changes, or that shares an address with another name, never gets another name's connection; a connection that
was opened with a client certificate never serves a receiver without it; and late bytes after one receiver's
answer never reach another receiver (docs/decisions/connections-per-receiver.md). The connection that was used
last is reused first. The one that has been idle longest is closed first, after a maximum idle time or when
room is needed.

The bounds count all receivers of a host together. If a bound is reached, an attempt waits for its turn, under
its own deadline (`connection_turns.py`). One connection is closed for it: the one that has been idle longest
or, if none is idle, the next that becomes idle. In its turn the attempt gets the room of a closed connection,
or a connection of its own receiver that has become idle.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Struct

from angarium.delivery.connections.connect import NoAnswer
from angarium.delivery.connections.connection_turns import ConnectionSlots, SlotLimit, Waiter
from angarium.delivery.connections.expiry_per_turn import ExpiryPerTurn
from angarium.delivery.connections.starts_per_turn import StartsPerTurn
from angarium.delivery.http_exchange.http1 import Exchange, Http1Connection
from angarium.delivery.http_exchange.transport import FailureKind


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """Bounds of a pool. `per_host_max` is for a host at one address, all its receivers together.

    If that many attempts hang at a host, its receivers wait for each other; all others continue.
    """

    connections_max: int = 16_384
    per_host_max: int = 4096
    idle_s: float = 30.0


DEFAULT_LIMITS = ConnectionLimits()


class PathKey(Struct, frozen=True, gc=False, cache_hash=True):
    """The key of an egress path: the names of its profiles, each with the version of its files."""

    proxy: str | None = None
    proxy_version: int = 0
    tls: str | None = None
    tls_version: int = 0


DIRECT = PathKey()
"""The key of the direct path."""


class Key(Struct, frozen=True, gc=False):
    """The key of a kept connection."""

    receiver: str
    scheme: str
    host: str
    port: int
    address: str
    path: PathKey = DIRECT

    @property
    def host_key(self) -> "HostKey":
        """The key without its receiver."""
        return self.scheme, self.host, self.port, self.address, self.path


HostKey = tuple[str, str, int, str, PathKey]
"""The key under which the connections of one host count together."""


class _ConnectionLimit(SlotLimit[Http1Connection]):
    """Connections under one bound: which have been idle since when, and how many are being closed."""

    __slots__ = ("closing", "idle")

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.closing = 0
        self.idle: dict[Http1Connection, tuple[_Group, float]] = {}

    @property
    def lacks_room(self) -> bool:
        """True if more attempts wait than connections are being closed; none stays idle then."""
        return self.queue.count > self.closing


class _Host(_ConnectionLimit):
    """The connections to one host at one address."""

    __slots__ = ("key",)

    def __init__(self, key: HostKey, capacity: int) -> None:
        super().__init__(capacity)
        self.key = key


class _Group:
    """The connections of one receiver at a host, and the owner to which they report."""

    __slots__ = ("expire_soon", "host", "idle", "key", "open_count", "pool", "write_soon")

    def __init__(self, pool: "Pool", key: Key, host: _Host) -> None:
        self.pool = pool
        self.write_soon, self.expire_soon = pool.write_soon, pool.expire_soon
        self.key = key
        self.host = host
        self.open_count = 0
        self.idle: dict[Http1Connection, None] = {}

    def keep_idle(self, connection: Http1Connection) -> None:
        self.pool.keep_idle(self, connection)

    def closed(self, connection: Http1Connection) -> None:
        self.pool.closed(self, connection)


class Pool:
    """Keeps connections, opens new ones, and bounds both. Belongs to one event loop."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._hosts: dict[HostKey, _Host] = {}
        self._groups: dict[Key, _Group] = {}
        self._all: set[Http1Connection] = set()
        self._closing: set[Http1Connection] = set()
        self._whole = _ConnectionLimit(limits.connections_max)
        self._slots = ConnectionSlots(self._whole)
        self._opening = StartsPerTurn()
        self._idle, self._queue = self._whole.idle, self._whole.queue
        self._due: list[Http1Connection] = []
        self._expiry = ExpiryPerTurn()
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None

    @property
    def open_count(self) -> int:
        """Connections that are open or being opened."""
        return len(self._all)

    @property
    def open_by_path(self) -> Counter[PathKey]:
        """Connections that are open or being opened, by the key of their path."""
        found = Counter[PathKey]()
        for key, group in self._groups.items():
            found[key.path] += group.open_count
        return found

    def take(self, key: Key) -> Http1Connection | None:
        """The receiver's kept connection that was used last, if there is one."""
        group = self._groups.get(key)
        while group is not None and group.idle:
            connection, _ = group.idle.popitem()
            del group.host.idle[connection]
            del self._idle[connection]
            if connection.is_usable:
                return connection
        return None

    async def wait_for_room(self, key: Key, *, fresh: bool) -> Http1Connection | None:
        """Wait for room for a new connection; the caller calls `reserve` with no await in between.

        Without `fresh`, an idle connection of the receiver is accepted as well, and returned.
        """
        kept = None if fresh else self.take(key)
        if kept is not None or self._emptied is not None:
            return kept
        host = self._host(key)
        waiter: Waiter[Http1Connection] = Waiter(
            self._loop.create_future(), key.receiver, host, accepts_idle_of=None if fresh else key
        )
        self._slots.enter(waiter)
        self._make_room(host)
        self._make_room(self._whole)
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter.received is None:
                self._slots.withdraw(waiter)
                self._forget_if_empty(host)
            elif waiter.received.is_usable:
                self.keep_idle(self._groups[key], waiter.received)
            raise
        return waiter.received

    async def reserve(self, key: Key) -> Http1Connection:
        """Take the room that `wait_for_room` gave, and wait for the turn to `connect` in it.

        Raises NoAnswer if the pool is closed.
        """
        if self._emptied is not None:
            raise NoAnswer(FailureKind.CONNECT, "the transport is closed")
        group = self._groups.get(key) or self._groups.setdefault(key, _Group(self, key, self._host(key)))
        connection = Http1Connection(group, self._loop)
        self._all.add(connection)
        group.open_count += 1
        try:
            await self._opening.begin()
        except BaseException:
            self.closed(group, connection)
            raise
        return connection

    async def connect(
        self, key: Key, connection: Http1Connection, dial: Callable[[Http1Connection], Awaitable[None]]
    ) -> Http1Connection:
        """Connect what `reserve` returned by `dial`, and return it; raises what `dial` raises."""
        try:
            await dial(connection)
        except BaseException:
            connection.abort()
            self.closed(self._groups[key], connection)
            raise
        return connection

    async def close(self) -> None:
        """Abort every connection and return when the last is gone; nothing can be opened after it."""
        if self._emptied is None:
            self._emptied = self._loop.create_future()
        for connection in list(self._all):
            connection.abort()
        for queue in (self._queue, *(host.queue for host in self._hosts.values())):
            for waiter in queue:
                waiter.wake()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._all:
            await asyncio.shield(self._emptied)

    def write_soon(self, connection: Http1Connection) -> None:
        """Let the connection write at the end of this turn of the event loop, together with all others."""
        if not self._due:
            self._loop.call_soon(self._write)
        self._due.append(connection)

    def expire_soon(self, connection: Http1Connection, exchange: Exchange) -> None:
        """Let the exchange expire in its turn."""
        self._expiry.call_soon(partial(connection.expire, exchange))

    def keep_idle(self, group: _Group, connection: Http1Connection) -> None:
        """Take back a connection that can be used for another exchange of its receiver."""
        if (self._queue.count or group.host.queue.count) and self._passed_on(group, connection):
            return
        kept = (group, self._loop.time())
        group.idle[connection] = None
        group.host.idle[connection] = kept
        self._idle[connection] = kept
        if self._sweeper is None:
            self._sweeper = self._loop.call_at(kept[1] + self._limits.idle_s, self._sweep)

    def closed(self, group: _Group, connection: Http1Connection) -> None:
        """Free the room of a connection that is gone, or was never made."""
        if connection not in self._all:
            return
        host = group.host
        self._all.remove(connection)
        group.open_count -= 1
        self._retire(group, connection)
        if connection in self._closing:
            self._closing.remove(connection)
            host.closing -= 1
            self._whole.closing -= 1
        self._slots.leave(host)
        self._make_room(self._whole)
        if not group.open_count:
            del self._groups[group.key]
        self._forget_if_empty(host)
        if self._emptied is not None and not self._all and not self._emptied.done():
            self._emptied.set_result(None)

    def _passed_on(self, group: _Group, connection: Http1Connection) -> bool:
        """True if the attempt whose turn it is gets the connection, or it is closed to make room."""
        for bound in (self._whole, group.host):
            if self._slots.give(bound, connection, group.key):
                return True
            if bound.lacks_room:
                self._close(group, connection)
                return True
        return False

    def _make_room(self, bound: _ConnectionLimit) -> None:
        """Close the longest idle connection, if an attempt waits for it."""
        if bound.lacks_room and bound.idle:
            connection, (group, _) = next(iter(bound.idle.items()))
            self._close(group, connection)

    def _close(self, group: _Group, connection: Http1Connection) -> None:
        self._retire(group, connection)
        self._closing.add(connection)
        group.host.closing += 1
        self._whole.closing += 1
        connection.abort()

    def _host(self, key: Key) -> _Host:
        host_key = key.host_key
        host = self._hosts.get(host_key)
        if host is None:
            host = self._hosts[host_key] = _Host(host_key, self._limits.per_host_max)
        return host

    def _forget_if_empty(self, host: _Host) -> None:
        """Forget the host if no slot is taken there; while an attempt waits, at least one is taken."""
        if not host.taken:
            del self._hosts[host.key]

    def _write(self) -> None:
        due, self._due = self._due, []
        for connection in due:
            connection.write()

    def _retire(self, group: _Group, connection: Http1Connection) -> None:
        """Take the connection out: it is not used again."""
        group.idle.pop(connection, None)
        group.host.idle.pop(connection, None)
        self._idle.pop(connection, None)

    def _sweep(self) -> None:
        """Close connections that have been idle for too long, and schedule the next sweep."""
        now = self._loop.time()
        self._sweeper = None
        for connection, (group, since) in list(self._idle.items()):
            if since + self._limits.idle_s > now:
                self._sweeper = self._loop.call_at(since + self._limits.idle_s, self._sweep)
                break
            self._close(group, connection)
