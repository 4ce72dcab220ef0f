"""Hosts that cannot be connected to: their receivers share that knowledge, and try the host in turn.

A host is down after three failed connections in a row, of at least two receivers. From then on one attempt
at a time is made there, after a pause that grows to 15 s. The other receivers wait, and nothing is recorded
about them. Tenants take turns, and so do the receivers of each. A turn ends with its attempt, or after 5 s.
With the first contact, by any receiver, the host is up, and all receivers that wait are woken, some at a time
(docs/decisions/down-hosts.md).
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
BEGIN_WITHIN_S = 1.0
"""Time in which the receiver whose turn it is has to begin its attempt."""
TURN_MAX_S = 5.0
"""Time after which a turn ends, even if its attempt is under way: it may wait for its tenant's budget."""
FAILURES_COUNT_FOR_S = 3600.0
HOSTS_MAX = 4096
"""Hosts that are down, and other hosts with failures, that are remembered. Of each kind, those that failed
the longest ago are forgotten first."""
CALLED_AT_ONCE = 64
"""Receivers that are woken for one turn before other work has a turn of the loop."""
WOKEN_AT_ONCE = 64
WAKE_EVERY_S = 0.05
"""Receivers of a host that is up again that are woken at a time, and the interval."""

HostAndPort = tuple[str, int]


class _FailingHost(Struct):
    """A host with failures since the last contact.

    - `failures`: those that count: before it was down, and of turns.
    - `failed_by`: receivers whose connections failed, as many as have to.
    - `turn_of`: the receiver whose turn it is until `turn_ends_at`; `has_begun`: its attempt is under way.
    - `being_woken`: the receiver that is being woken for its turn.
    """

    failures: int = 0
    failed_by: set[str] = field(default_factory=set)
    failed_at: float = 0.0
    due_at: float = 0.0
    turn_of: str = ""
    has_begun: bool = False
    turn_ends_at: float = 0.0
    being_woken: str = ""
    waiting: TurnQueue[str] = field(default_factory=TurnQueue)
    queued: set[str] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None

    @property
    def is_down(self) -> bool:
        """True if its receivers take turns."""
        return self.failures >= FAILURES_MIN and len(self.failed_by) >= RECEIVERS_MIN

    def fail(self, now: float) -> None:
        """Count a failure, and have a pause after it."""
        self.failures += 1
        doublings = min(10, max(0, self.failures - FAILURES_MIN))
        self.due_at = now + min(PAUSE_MAX_S, PAUSE_MIN_S * 2.0**doublings)

    def end_turn(self) -> None:
        """End the turn of the receiver that has it."""
        self.turn_of, self.has_begun = "", False

    def wait(self, receiver: str) -> None:
        """Have the receiver wait for its turn."""
        if receiver not in self.queued:
            self.queued.add(receiver)
            self.waiting.add(receiver, receiver)

    def stop_timer(self) -> None:
        """Call no receiver, and end no turn."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class DownHosts:
    """The hosts with failures; belongs to the event loop that runs when it is made.

    - `has_own_path`: true for a receiver that is reached by another path (a proxy); it takes no part.
    - `count`: number of hosts that are down. Each attempt asks for it several times, so nothing is called.
    """

    def __init__(self, *, has_own_path: Callable[[Policy], bool] = lambda policy: False) -> None:
        self._loop = asyncio.get_running_loop()
        self._has_own_path = has_own_path
        self._failing: dict[HostAndPort, _FailingHost] = {}
        self._down: dict[HostAndPort, _FailingHost] = {}
        self._wake: Callable[[str], None] = lambda receiver: None
        self.count = 0

    def on_turn(self, wake: Callable[[str], None]) -> None:
        """Call `wake` with each receiver whose turn it is: it asks whether it may try before that returns."""
        self._wake = wake

    def may_try(self, receiver: str, policy: Policy, *, has_attempts: bool) -> bool:
        """True if an attempt may start now, which takes the turn; else the receiver is woken for its turn.

        A receiver without attempts may ask again: it reads its event first, or has a fact confirmed.
        """
        key = self._key(policy) if self._down else None
        host = None if key is None else self._down.get(key)
        if key is None or host is None:
            return True
        if host.turn_of == receiver and not (host.has_begun or has_attempts):
            return True
        now = self._loop.time()
        is_free = not host.turn_of and now >= host.due_at and not host.waiting.count
        if host.being_woken == receiver or is_free:
            host.being_woken = ""
            host.turn_of, host.has_begun, host.turn_ends_at = receiver, False, now + BEGIN_WITHIN_S
            self._schedule(key, host)
            return True
        host.wait(receiver)
        if host.timer is None:
            self._schedule(key, host)
        return False

    def is_down(self, policy: Policy) -> bool:
        """True if the receiver's host is down; this takes no turn."""
        key = self._key(policy) if self._down else None
        return key is not None and key in self._down

    # ---- what attempts tell

    def begun(self, receiver: str, target: Target) -> None:
        """An attempt of this receiver begins."""
        key = target.host, target.port
        host = self._down.get(key)
        if host is not None and host.turn_of == receiver and not host.has_begun:
            host.has_begun, host.turn_ends_at = True, self._loop.time() + TURN_MAX_S
            self._schedule(key, host)

    def reached(self, target: Target) -> None:
        """A connection to this host was opened, or it answered."""
        key = target.host, target.port
        self._failing.pop(key, None)
        if key in self._down:
            host = self._down.pop(key)
            self.count = len(self._down)
            self._wake_all(host)

    def unreached(self, receiver: str, target: Target) -> None:
        """A connection to this host failed, and that is not due to this node."""
        key, now = (target.host, target.port), self._loop.time()
        if (host := self._down.pop(key, None)) is not None:
            self._down[key] = host
            if host.turn_of == receiver:
                host.fail(now)
                host.end_turn()
            self._schedule(key, host)
            return
        host = self._failing.pop(key, None)
        if host is None or now - host.failed_at > FAILURES_COUNT_FOR_S:
            host = _FailingHost()
        host.failed_at = now
        host.fail(now)
        if len(host.failed_by) < RECEIVERS_MIN:
            host.failed_by.add(receiver)
        (self._down if host.is_down else self._failing)[key] = host
        if len(self._failing) > HOSTS_MAX:
            del self._failing[next(iter(self._failing))]
        forgotten = self._down.pop(next(iter(self._down))) if len(self._down) > HOSTS_MAX else None
        self.count = len(self._down)
        if forgotten is not None:
            self._wake_all(forgotten)

    def ended(self, receiver: str, target: Target) -> None:
        """An attempt of this receiver ended in a way that says nothing about its host."""
        key = target.host, target.port
        host = self._down.get(key)
        if host is not None and host.turn_of == receiver:
            host.end_turn()
            self._schedule(key, host)

    # ---- turns

    def _schedule(self, key: HostAndPort, host: _FailingHost) -> None:
        """Set the timer for the end of the turn, or for the next one."""
        host.stop_timer()
        if host.turn_of:
            host.timer = self._loop.call_at(host.turn_ends_at, self._end_late_turn, key, host)
        elif host.waiting.count:
            host.timer = self._loop.call_at(host.due_at, self._call_next, key, host)

    def _end_late_turn(self, key: HostAndPort, host: _FailingHost) -> None:
        """End a turn that took too long. A receiver that has not begun has another one if it waits for it."""
        if host.has_begun:
            host.fail(self._loop.time())
        else:
            host.wait(host.turn_of)
        host.end_turn()
        self._schedule(key, host)

    def _call_next(self, key: HostAndPort, host: _FailingHost) -> None:
        """Wake the receivers in turn until one of them takes the turn."""
        for _ in range(CALLED_AT_ONCE):
            if host.turn_of or not host.waiting.count or self._down.get(key) is not host:
                break
            receiver = host.waiting.take()
            host.queued.discard(receiver)
            host.being_woken = receiver
            self._wake(receiver)
            host.being_woken = ""
        if self._down.get(key) is host:
            self._schedule(key, host)

    def _wake_all(self, host: _FailingHost) -> None:
        """Wake all receivers that wait for a host, which is no longer known as down."""
        host.stop_timer()
        if host.waiting.count:
            self._loop.call_soon(self._wake_some, host)

    def _wake_some(self, host: _FailingHost) -> None:
        for _ in range(min(WOKEN_AT_ONCE, host.waiting.count)):
            self._wake(host.waiting.take())
        if host.waiting.count:
            self._loop.call_later(WAKE_EVERY_S, self._wake_some, host)

    def _key(self, policy: Policy) -> HostAndPort | None:
        return None if self._has_own_path(policy) else key_of(policy.url)


@lru_cache(maxsize=1 << 13)
def key_of(url: str) -> HostAndPort | None:
    """The host and port of a URL; None if it cannot be used."""
    try:
        target = parse_target(url)
    except InvalidTarget:
        return None
    return target.host, target.port
