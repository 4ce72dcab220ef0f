"""Hosts that cannot be connected to: their receivers share that knowledge, and try the host in turn.

A host is down after three failed connections in a row, of at least two receivers. From then on one attempt
at a time is made there, after a pause that grows to 15 s. The other receivers wait, and nothing is recorded
about them. Tenants take turns, and so do the receivers of each. With the first contact, of any receiver, the
host is up, and all that wait are let go, some at a time (docs/decisions/down-hosts.md).
"""

import asyncio
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct, field

from actors.configuration.policy import Policy
from angarium.delivery.connections.connection_turns import TurnQueue
from angarium.delivery.http_exchange.target import InvalidTarget, Target, parse_target

FAILURES_MIN = 3
RECEIVERS_MIN = 2
"""Failed connections in a row, and receivers that made them, from which on a host is down."""
PAUSE_MIN_S = 0.5
PAUSE_MAX_S = 15.0
"""The pause before the next attempt there, doubled by each failure."""
BEGINS_WITHIN_S = 1.0
"""Time in which the receiver whose turn it is has to begin its attempt."""
FAILURES_COUNT_FOR_S = 3600.0
HOSTS_MAX = 4096
"""Hosts with failures that are remembered; those that failed the longest ago are forgotten first."""
LET_GO_AT_ONCE = 64
LET_GO_EVERY_S = 0.05

HostKey = tuple[str, int]


class _Host(Struct):
    """A host with failures since the last contact.

    - `failed_by`: receivers whose connections failed, as many as have to.
    - `probing`: the receiver whose attempt is under way, or has its turn until `begins_by`.
    - `called`: the receiver that is being woken for its turn.
    """

    failures: int = 0
    failed_by: set[str] = field(default_factory=set)
    failed_at: float = 0.0
    due_at: float = 0.0
    probing: str = ""
    begins_by: float | None = None
    called: str = ""
    waiting: TurnQueue[str] = field(default_factory=TurnQueue)
    queued: set[str] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None

    @property
    def is_down(self) -> bool:
        """True if its receivers take turns."""
        return self.failures >= FAILURES_MIN and len(self.failed_by) >= RECEIVERS_MIN


class DownHosts:
    """The hosts with failures; belongs to the event loop that runs when it is made.

    - `has_own_path`: true for a receiver that is reached by another path (a proxy); it takes no part.
    - `count`: how many hosts are down.
    """

    def __init__(self, *, has_own_path: Callable[[Policy], bool] = lambda policy: False) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._has_own_path = has_own_path
        self._hosts: dict[HostKey, _Host] = {}
        self._wake: Callable[[str], None] = lambda receiver: None

    def on_turn(self, wake: Callable[[str], None]) -> None:
        """Call `wake` with each receiver whose turn it is: it asks whether it may try before that returns."""
        self._wake = wake

    def may_try(self, receiver: str, policy: Policy) -> bool:
        """True if an attempt may start now, which takes the turn; else the receiver is woken for its turn."""
        key = self._key(policy) if self.count else None
        host = None if key is None else self._hosts.get(key)
        if key is None or host is None or not host.is_down:
            return True
        now = self._loop.time()
        is_free = not host.probing and now >= host.due_at and not host.waiting.count
        if host.called == receiver or is_free:
            host.called = ""
            host.probing, host.begins_by = receiver, now + BEGINS_WITHIN_S
            self._schedule(key, host)
            return True
        if receiver not in host.queued:
            host.queued.add(receiver)
            host.waiting.add(receiver, receiver)
            self._schedule(key, host)
        return False

    def is_down(self, policy: Policy) -> bool:
        """True if the receiver's host is down; this takes no turn."""
        key = self._key(policy) if self.count else None
        host = None if key is None else self._hosts.get(key)
        return host is not None and host.is_down

    # ---- what attempts tell

    def begun(self, receiver: str, target: Target) -> None:
        """An attempt of this receiver begins."""
        host = self._hosts.get((target.host, target.port))
        if host is not None and host.probing == receiver:
            host.begins_by = None

    def reached(self, target: Target) -> None:
        """A connection to this host was opened, or it answered."""
        key = target.host, target.port
        host = self._hosts.get(key)
        if host is not None:
            self._forget(key, host)

    def unreached(self, receiver: str, target: Target) -> None:
        """A connection to this host failed, and that is not due to this node."""
        key, now = (target.host, target.port), self._loop.time()
        host = self._hosts.pop(key, None) or _Host()
        if now - host.failed_at > FAILURES_COUNT_FOR_S and not host.is_down:
            host.failures = 0
        self._hosts[key] = host
        was_down = host.is_down
        host.failed_at = now
        host.failures += 1
        if len(host.failed_by) < RECEIVERS_MIN:
            host.failed_by.add(receiver)
        self.count += host.is_down and not was_down
        if not was_down or host.probing == receiver:
            doublings = min(10, max(0, host.failures - FAILURES_MIN))
            host.due_at = now + min(PAUSE_MAX_S, PAUSE_MIN_S * 2.0**doublings)
        self._ended(key, host, receiver)
        while len(self._hosts) > HOSTS_MAX:
            oldest = next(iter(self._hosts))
            self._forget(oldest, self._hosts[oldest])

    def ended(self, receiver: str, target: Target) -> None:
        """An attempt of this receiver ended in a way that says nothing about its host."""
        key = target.host, target.port
        host = self._hosts.get(key)
        if host is not None:
            self._ended(key, host, receiver)

    # ---- turns

    def _ended(self, key: HostKey, host: _Host, receiver: str) -> None:
        if host.probing == receiver:
            host.probing, host.begins_by = "", None
        self._schedule(key, host)

    def _schedule(self, key: HostKey, host: _Host) -> None:
        """Set the timer for the next turn."""
        if host.timer is not None:
            host.timer.cancel()
            host.timer = None
        if host.probing and host.begins_by is not None:
            host.timer = self._loop.call_at(host.begins_by, self._lapse, key, host)
        elif host.waiting.count and not host.probing:
            host.timer = self._loop.call_at(host.due_at, self._call_next, key, host)

    def _lapse(self, key: HostKey, host: _Host) -> None:
        """The receiver whose turn it was has not begun. It has another turn if it waits for one."""
        late, host.probing, host.begins_by = host.probing, "", None
        if late not in host.queued:
            host.queued.add(late)
            host.waiting.add(late, late)
        self._schedule(key, host)

    def _call_next(self, key: HostKey, host: _Host) -> None:
        """Wake the receivers in turn until one of them takes the turn."""
        for _ in range(LET_GO_AT_ONCE):
            if host.probing or not host.waiting.count or self._hosts.get(key) is not host:
                break
            receiver = host.waiting.take()
            host.queued.discard(receiver)
            host.called = receiver
            self._wake(receiver)
            host.called = ""
        if self._hosts.get(key) is host:
            self._schedule(key, host)

    def _forget(self, key: HostKey, host: _Host) -> None:
        """Forget the failures of a host, and let all go that wait for it."""
        del self._hosts[key]
        self.count -= host.is_down
        host.failures, host.probing, host.begins_by = 0, "", None
        if host.timer is not None:
            host.timer.cancel()
            host.timer = None
        if host.waiting.count:
            self._loop.call_soon(self._let_go, host)

    def _let_go(self, host: _Host) -> None:
        for _ in range(min(LET_GO_AT_ONCE, host.waiting.count)):
            self._wake(host.waiting.take())
        if host.waiting.count:
            self._loop.call_later(LET_GO_EVERY_S, self._let_go, host)

    def _key(self, policy: Policy) -> HostKey | None:
        return None if self._has_own_path(policy) else key_of(policy.url)


@lru_cache(maxsize=1 << 13)
def key_of(url: str) -> HostKey | None:
    """The host and port of a URL; None if it cannot be used."""
    try:
        target = parse_target(url)
    except InvalidTarget:
        return None
    return target.host, target.port
