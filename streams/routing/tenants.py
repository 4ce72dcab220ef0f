"""Tenants of one partition: which have events in memory, which are parked, and whose turn it is.

This module is pure: it has no clock and no I/O. Events arrive in the order of the stream and stay in memory
until all their copies are confirmed. A tenant with too many events in memory, or with one that has waited too
long, is *parked*: its new events are dropped, and read later from the stream by the tenant's subject, while
other tenants continue. The rules:

- An event is *routed* when all its copies are confirmed. `routed` is a position: all events up to there are
  routed, except those of parked tenants.
- `passed_to` of a parked tenant: `routed` has passed its events up to here, routed or not.
- `unrouted_from` of a parked tenant: its lowest event that is not routed.

1. `routed` goes past an event that is routed, or that belongs to a parked tenant and is at or below
   `passed_to`. What arrived later and is held stops `routed`. An event that is dropped raises `passed_to`.
2. A new owner reads a parked tenant's events from `unrouted_from` up to the recorded `routed` at once.
3. A parked tenant's new events are held if all its earlier ones were read and there is room; otherwise they
   are dropped. None of its events above `passed_to` is read by subject.
4. A tenant is unparked when all its events up to `passed_to` were read and are routed.
5. An event above its tenant's rate waits for a token, as an event waits for its turn. A tenant that waits for
   a token needs one event in memory: if memory is short, the tenant is parked, and its other events are
   dropped (`shed`). A page that was requested before that no longer follows the events in memory, and is not
   taken.
6. Events of a tenant that is not parked may be *read ahead*: by its subject, above the highest arrival, in
   order, while it has room. Such an event stops `routed` only from its arrival on, which is recognised by its
   position and not kept again. So a parked tenant's position is never beyond what has arrived.

`routed` and `unrouted_from` of each parked tenant are recorded together, in each flush of the
shard's journal, as of one moment (`RoutingProgress`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from streams.routing.tenant_rates import TenantRates
from streams.routing_progress import RoutingProgress

EVENTS_MAX = 256
"""Events of a tenant in memory: enough to keep all senders busy while half of them are read."""

BYTES_MAX = 256 << 10
"""Bytes of a tenant's events in memory, so that a dozen floods leave room for others."""

UNCONFIRMED_COPIES_MAX = 512
"""Unconfirmed copies of a tenant above which no more of its events are matched."""

PARKED_MAX = 64
"""Parked tenants of a partition: each flush names them. With more, all tenants wait for the floods."""


class WaitingEvent(Protocol):
    """An event in memory. `came_at`: when it arrived or was read."""

    @property
    def tenant(self) -> str: ...
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def came_at(self) -> float: ...


NO_END = 1 << 63
"""A position beyond all others."""


class ReadRequest(Struct, frozen=True):
    """A part of a tenant's events to be read: `above` a position, `up_to` another or `NO_END`."""

    tenant: str
    above: int
    up_to: int
    count_max: int


T = TypeVar("T", bound=WaitingEvent)


class TenantInMemory(Generic[T]):
    """A tenant with events in memory, or a parked one.

    - `events`: those that are not routed, by position, in order.
    - `unmatched`: the last of these: their receivers have not been looked up yet.
    - `copies`: number of unconfirmed copies.
    - `bytes`: size of the events in memory.
    - `parked`: later events are left in the stream.
    - `queued_to_match`: it is among those whose next event is matched.
    - `waits_for_token`: it is above its rate.
    - `may_hold_back`: some of its events may keep `routed` back.
    - `passed_to`: the position of the last event that was left in the stream; only of a parked tenant.
    - `read_to`: all events of the tenant up to here were in memory; those of a tenant that is not parked, up
      to the highest arrival, too.
    """

    __slots__ = (
        "bytes",
        "copies",
        "events",
        "may_hold_back",
        "parked",
        "passed_to",
        "queued_to_match",
        "read_to",
        "unmatched",
        "waits_for_token",
    )  # fmt: skip

    def __init__(self) -> None:
        self.events: dict[int, T] = {}
        self.unmatched: deque[T] = deque()
        self.copies = 0
        self.bytes = 0
        self.parked = self.queued_to_match = self.may_hold_back = self.waits_for_token = False
        self.passed_to = self.read_to = 0

    @property
    def full(self) -> bool:
        return len(self.events) >= EVENTS_MAX or self.bytes >= BYTES_MAX

    @property
    def has_room(self) -> bool:
        """True if half of its room is free, and it can make use of more."""
        if self.waits_for_token and self.unmatched:
            return False
        return len(self.events) * 2 <= EVENTS_MAX and self.bytes * 2 <= BYTES_MAX

    @property
    def wants_to_read(self) -> bool:
        """True if it is parked, more of it is in the stream, and it has room."""
        return self.parked and self.read_to < self.passed_to and self.has_room

    @property
    def unrouted_from(self) -> int:
        """The position of the lowest event that is not routed."""
        return next(iter(self.events), self.read_to + 1)

    @property
    def caught_up(self) -> bool:
        """True if everything of a parked tenant up to `passed_to` was read and is routed."""
        return self.read_to >= self.passed_to and self.unrouted_from > self.passed_to


class Tenants(Generic[T]):
    """The tenants of a partition under one claim.

    - `recorded`: the state by the journal.
    - `highest`: the highest event that has arrived.
    - `by_name`: the tenants with events in memory, and those that are `parked` or read ahead.
    - `holding_back`: the events that stop `routed`, by position, in order.
    """

    def __init__(self, recorded: RoutingProgress, rates: TenantRates) -> None:
        self.highest = recorded.routed
        self.by_name: dict[str, TenantInMemory[T]] = {}
        self.holding_back: dict[int, T] = {}
        self.parked: dict[str, TenantInMemory[T]] = {}
        self._to_match: deque[str] = deque()
        self._rates = rates
        self._without_token: list[tuple[float, str]] = []
        for name, position in recorded.parked_tenants.items():
            tenant = self.by_name[name] = TenantInMemory()
            self._park(name, tenant, passed_to=recorded.routed, read_to=position - 1)
            self._tidy(name, tenant)

    # ---- records

    @property
    def routed(self) -> int:
        """The position up to which everything is routed, or belongs to a parked tenant. It never falls."""
        return next(iter(self.holding_back)) - 1 if self.holding_back else self.highest

    @property
    def progress(self) -> RoutingProgress:
        """The progress of routing, to be recorded."""
        parked = {name: tenant.unrouted_from for name, tenant in self.parked.items()}
        return RoutingProgress(routed=self.routed, parked_tenants=parked)

    # ---- arrivals

    def recognise(self, name: str, position: int) -> bool:
        """True if the tenant's event that arrives now was in memory before; otherwise `admits` decides."""
        tenant = self.by_name.get(name)
        if tenant is None or position > tenant.read_to:
            return False
        self.highest = position
        if (event := tenant.events.get(position)) is not None:
            self.holding_back[position] = event
            tenant.may_hold_back = True
        self._tidy(name, tenant)
        return True

    def admits(self, name: str, *, may_park: bool) -> bool:
        """True if the tenant's event that arrives now is to be kept by `add`, False if `drop` is to take it.

        `may_park`: the tenant's events can be read by its subject.
        """
        tenant = self.by_name.get(name)
        if tenant is None:
            return True
        if tenant.parked:
            return tenant.read_to >= tenant.passed_to and not tenant.full
        return not (tenant.full and may_park and len(self.parked) < PARKED_MAX)

    def drop(self, name: str, position: int) -> None:
        """Leave the event that arrives to the stream; its tenant is parked from now on."""
        self.highest = position
        tenant = self.by_name[name]
        if tenant.parked:
            self._pass(tenant, position)
        else:
            self._park(name, tenant, passed_to=position, read_to=position - 1)

    def add(self, event: T) -> None:
        """Keep the event that arrives."""
        self.highest = event.position
        tenant = self.by_name.get(event.tenant)
        if tenant is None:
            tenant = self.by_name[event.tenant] = TenantInMemory()
        if tenant.parked:
            tenant.read_to = event.position
        self.holding_back[event.position] = event
        tenant.may_hold_back = True
        self._keep(tenant, event)

    @property
    def first_holding_back(self) -> T | None:
        """The event that keeps `routed` back, if there is one."""
        return next(iter(self.holding_back.values()), None)

    def park(self, name: str, *, may_park: bool) -> bool:
        """Park a tenant whose event keeps `routed` back; False if it cannot be parked."""
        tenant = self.by_name[name]
        if tenant.parked:
            self._pass(tenant, min(tenant.read_to, self.highest))
            return True
        if may_park and len(self.parked) < PARKED_MAX:
            self._park(name, tenant, passed_to=self.highest, read_to=max(tenant.read_to, self.highest))
            return True
        return False

    def _park(self, name: str, tenant: TenantInMemory[T], *, passed_to: int, read_to: int) -> None:
        tenant.parked, tenant.read_to = True, read_to
        self.parked[name] = tenant
        self._pass(tenant, passed_to)

    def _pass(self, tenant: TenantInMemory[T], passed_to: int) -> None:
        """Let `routed` pass all events of a parked tenant up to `passed_to`, with all that have arrived."""
        tenant.passed_to = passed_to
        if tenant.may_hold_back:  # Not for each event of a flood that is dropped.
            tenant.may_hold_back = False
            for position in tenant.events:
                self.holding_back.pop(position, None)

    def _tidy(self, name: str, tenant: TenantInMemory[T]) -> None:
        """End the parking of a tenant that has caught up; forget one of which nothing is to be recognised."""
        if tenant.parked and tenant.caught_up:
            tenant.parked = False
            del self.parked[name]
        if not tenant.parked and not tenant.events and tenant.read_to <= self.highest:
            del self.by_name[name]

    # ---- reading by subject

    def next_read(self) -> ReadRequest | None:
        """The next part to be read: parked tenants take turns, those with enough in memory have none."""
        for name, tenant in self.parked.items():
            if tenant.wants_to_read:
                self.parked[name] = self.parked.pop(name)
                return ReadRequest(name, tenant.read_to, tenant.passed_to, EVENTS_MAX - len(tenant.events))
        return None

    def take_read(self, request: ReadRequest, events: Sequence[T], *, complete: bool) -> None:
        """Take messages; `complete`: the stream has no others up to the requested place."""
        tenant = self.by_name[request.tenant]
        if request.above > tenant.read_to:
            return  # It has shed events since.
        for event in events:
            self._keep(tenant, event)
            tenant.read_to = event.position
        if complete:
            tenant.read_to = request.up_to
        self._tidy(request.tenant, tenant)

    # ---- reading ahead

    def next_ahead(self, name: str) -> ReadRequest | None:
        """The next part of a tenant's events to be read ahead; None if it is parked, or has no room."""
        tenant = self.by_name.get(name)
        if tenant is None:
            return ReadRequest(name, self.highest, NO_END, EVENTS_MAX)
        if tenant.parked or not tenant.has_room:
            return None
        above = max(tenant.read_to, self.highest)
        return ReadRequest(name, above, NO_END, EVENTS_MAX - len(tenant.events))

    def take_ahead(self, request: ReadRequest, events: Iterable[T]) -> list[T]:
        """Keep events of a tenant in their order, the first ones above the place of the request.

        Those that have arrived since are left out; so are all if the tenant was parked meanwhile, or has shed
        events. Returns those that are kept.
        """
        name, kept = request.tenant, list[T]()
        tenant = self.by_name.get(name) or TenantInMemory()
        if request.above > max(tenant.read_to, self.highest):
            return kept
        for event in events:
            if not tenant.parked and event.position > max(tenant.read_to, self.highest):
                self.by_name[name] = tenant
                self._keep(tenant, event)
                tenant.read_to = event.position
                kept.append(event)
        return kept

    # ---- matching and copies

    def next_to_match(self, now: float) -> T | None:
        """The next event to be matched: tenants take turns, as far as their copies and rates have room."""
        while self._without_token and self._without_token[0][0] <= now:
            name = heappop(self._without_token)[1]
            self.by_name[name].waits_for_token = False
            self._to_match.append(name)
        while self._to_match:
            name = self._to_match.popleft()
            tenant = self.by_name[name]
            if token_at := self._rates.take(name, now):
                tenant.waits_for_token = True
                heappush(self._without_token, (token_at, name))
                continue
            tenant.queued_to_match = False
            return tenant.unmatched.popleft()
        return None

    def shed(self, may_park: Callable[[str], bool]) -> list[T]:
        """Leave to the stream what tenants above their rate have in memory, but for the next event of each.

        Returns the events that are dropped. `may_park`: as for `admits`, by name.
        """
        dropped = list[T]()
        for _, name in self._without_token:
            tenant = self.by_name[name]
            if len(tenant.unmatched) < 2 or tenant.unmatched[0].position > self.highest:
                continue
            if not (tenant.parked or (may_park(name) and len(self.parked) < PARKED_MAX)):
                continue
            if not tenant.parked:
                self._park(name, tenant, passed_to=self.highest, read_to=tenant.read_to)
            self._pass(tenant, max(tenant.passed_to, min(tenant.unmatched[-1].position, self.highest)))
            first, *rest = tenant.unmatched
            for event in rest:
                del tenant.events[event.position]
                tenant.bytes -= event.size
            tenant.unmatched = deque((first,))
            tenant.read_to = rest[0].position - 1
            dropped += rest
        return dropped

    @property
    def next_token_at(self) -> float | None:
        """The time at which the first tenant that is above its rate has a token; None if none is."""
        return self._without_token[0][0] if self._without_token else None

    def matched(self, event: T, copies: int) -> None:
        """Take note of the number of copies of an event, as `next_to_match` returned it."""
        tenant = self.by_name[event.tenant]
        tenant.copies += copies
        self._queue_to_match(event.tenant, tenant)

    def confirmed(self, event: T) -> None:
        """Take note that a copy of the event is stored."""
        tenant = self.by_name[event.tenant]
        tenant.copies -= 1
        self._queue_to_match(event.tenant, tenant)

    def close(self, event: T) -> bool:
        """Take note that all copies of the event are stored; returns whether its tenant wants to read on."""
        tenant = self.by_name[event.tenant]
        del tenant.events[event.position]
        tenant.bytes -= event.size
        self.holding_back.pop(event.position, None)
        self._tidy(event.tenant, tenant)
        return tenant.wants_to_read

    def _keep(self, tenant: TenantInMemory[T], event: T) -> None:
        tenant.events[event.position] = event
        tenant.bytes += event.size
        tenant.unmatched.append(event)
        self._queue_to_match(event.tenant, tenant)

    def _queue_to_match(self, name: str, tenant: TenantInMemory[T]) -> None:
        if tenant.unmatched and not tenant.queued_to_match and tenant.copies < UNCONFIRMED_COPIES_MAX:
            tenant.queued_to_match = True
            self._to_match.append(name)
