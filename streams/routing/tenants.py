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
5. An event above its tenant's rate waits for its token, like one that has no turn. A tenant that waits for
   one needs little memory: if memory is short, it is parked, and all but its next event are dropped, or that
   one, too (`shed`); then it is read event by event, when it has a token. Reads requested before that no
   longer follow what is in memory; their results are dropped. If it cannot be parked, the tokens are waived
   for what it has in memory: others do not wait for them.
6. Events of a tenant that is not parked may be *read ahead*: by its subject, above the highest arrival, in
   order, while it has room. Such an event stops `routed` only from its arrival on, which is recognised by its
   position and not kept again. So a parked tenant's position is never beyond what has arrived.
7. A parked tenant that is *evicted* up to a position drops what is not matched yet (`evict`). Its events up
   to there are read as usual, but become dead letters, and are never in memory. The results of reads
   requested before are dropped. So its position passes them only when their letters are stored.

`routed` and `unrouted_from` of each parked tenant are recorded together, in each flush of the
shard's journal, as of one moment (`RoutingProgress`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from streams.journal.routing_progress import RoutingProgress
from streams.routing.read_requests import NO_END, Evicted, ReadRequest, WaitingEvent
from streams.routing.tenant_rates import TenantRates

EVENTS_MAX = 256
"""Events of a tenant in memory: enough to keep all senders busy while half of them are read."""

BYTES_MAX = 256 << 10
"""Bytes of a tenant's events in memory, so that a dozen floods leave room for others."""

UNCONFIRMED_COPIES_MAX = 512
"""Unconfirmed copies of a tenant above which no more of its events are matched."""

PARKED_MAX = 512
"""Parked tenants of a partition, since each flush names them, in at most 45 KB. Beyond that, everybody waits
for the floods, and the rates of tenants do not hold."""


T = TypeVar("T", bound=WaitingEvent)


class TenantInMemory(Generic[T]):
    """A tenant with events in memory, or a parked one.

    - `events`: those that are not routed, by position, in order.
    - `unmatched`: the last of these: their receivers have not been looked up yet.
    - `copies`: number of unconfirmed copies.
    - `bytes`: size of the events in memory.
    - `parked`: later events are left in the stream.
    - `queued_to_match`: its next event is matched in its turn, or it is held; it may have none any more.
    - `waits_for_token`: it is above its rate. `waived_to`: its events up to here need no token.
    - `read_singly`: one event at a time is read of it, since memory was short.
    - `may_hold_back`: some of its events may keep `routed` back.
    - `passed_to`: the position of the last event that was left in the stream; only of a parked tenant.
    - `evicted_to`: what is not in memory becomes dead letters up to here; `evicted_count`: number of those.
    - `read_to`: all events of the tenant up to here were in memory; those of a tenant that is not parked, up
      to the highest arrival, too.
    """

    __slots__ = (
        "bytes",
        "copies",
        "events",
        "evicted_count",
        "evicted_to",
        "may_hold_back",
        "parked",
        "passed_to",
        "queued_to_match",
        "read_singly",
        "read_to",
        "unmatched",
        "waits_for_token",
        "waived_to",
    )  # fmt: skip

    def __init__(self) -> None:
        self.events: dict[int, T] = {}
        self.unmatched: deque[T] = deque()
        self.copies = self.bytes = self.evicted_to = self.evicted_count = 0
        self.parked = self.queued_to_match = self.may_hold_back = self.waits_for_token = False
        self.read_singly = False
        self.passed_to = self.read_to = self.waived_to = 0

    @property
    def is_full(self) -> bool:
        return len(self.events) >= EVENTS_MAX or self.bytes >= BYTES_MAX

    @property
    def has_room(self) -> bool:
        """True if at least half of its memory is free and no token is missing."""
        if self.waits_for_token:
            return False
        return len(self.events) * 2 <= EVENTS_MAX and self.bytes * 2 <= BYTES_MAX

    @property
    def is_evicted(self) -> bool:
        """True if the next events read become dead letters."""
        return self.read_to < self.evicted_to

    @property
    def wants_to_read(self) -> bool:
        """True if it is parked, more of it is in the stream, and it has room."""
        return self.parked and self.read_to < self.passed_to and self.has_room and not self.is_evicted

    @property
    def unrouted_from(self) -> int:
        """The position of the lowest event that is not routed."""
        return next(iter(self.events), self.read_to + 1)

    @property
    def has_caught_up(self) -> bool:
        """True if everything of a parked tenant up to `passed_to` was read and is routed."""
        return self.read_to >= self.passed_to and self.unrouted_from > self.passed_to


class Tenants(Generic[T]):
    """The tenants of a partition under one claim.

    - `recorded`: the state by the journal.
    - `highest`: the highest event that has arrived.
    - `by_name`: the tenants with events in memory, and those that are `parked` or read ahead.
    - `holding_back`: the events that stop `routed`, by position, in order.
    - `is_read_again`: set when a tenant that waited for a token may be read again.
    """

    def __init__(self, recorded: RoutingProgress, rates: TenantRates) -> None:
        self.highest = recorded.routed
        self.by_name: dict[str, TenantInMemory[T]] = {}
        self.holding_back: dict[int, T] = {}
        self.parked: dict[str, TenantInMemory[T]] = {}
        self.is_read_again = False
        self._may_read: dict[str, None] = {}
        self._being_evicted: dict[str, None] = {}
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
        """True if the arriving event should be kept (`add`), False if left in the stream (`drop`).

        `may_park`: the tenant's events can be read by its subject.
        """
        tenant = self.by_name.get(name)
        if tenant is None:
            return True
        if tenant.parked:
            return tenant.read_to >= tenant.passed_to and not tenant.is_full
        return not (tenant.is_full and may_park and len(self.parked) < PARKED_MAX)

    def drop(self, name: str, position: int) -> None:
        """Leave the event that arrives to the stream; its tenant is parked from now on."""
        self.highest = position
        tenant = self.by_name[name]
        if tenant.parked:
            self._pass(name, tenant, position)
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
            self._pass(name, tenant, min(tenant.read_to, self.highest))
            return True
        if may_park and len(self.parked) < PARKED_MAX:
            self._park(name, tenant, passed_to=self.highest, read_to=max(tenant.read_to, self.highest))
            return True
        return False

    def _park(self, name: str, tenant: TenantInMemory[T], *, passed_to: int, read_to: int) -> None:
        tenant.parked, tenant.read_to = True, read_to
        self.parked[name] = tenant
        self._pass(name, tenant, passed_to)

    def _pass(self, name: str, tenant: TenantInMemory[T], passed_to: int) -> None:
        """Let `routed` pass all events of a parked tenant up to `passed_to`, with all that have arrived."""
        tenant.passed_to = passed_to
        self._may_read[name] = None
        if tenant.may_hold_back:  # Not for each event of a flood that is dropped.
            tenant.may_hold_back = False
            for position in tenant.events:
                self.holding_back.pop(position, None)

    def _tidy(self, name: str, tenant: TenantInMemory[T]) -> None:
        """Unpark a tenant that has caught up; forget an idle one."""
        if tenant.parked and tenant.has_caught_up:
            tenant.parked = tenant.read_singly = False
            del self.parked[name]
        idle = not (tenant.parked or tenant.events or tenant.queued_to_match)
        if idle and tenant.read_to <= self.highest:
            del self.by_name[name]

    # ---- reading by subject

    def next_read(self) -> ReadRequest | None:
        """The next part to be read: parked tenants take turns, those with enough in memory have none."""
        while self._may_read:
            name = next(iter(self._may_read))
            del self._may_read[name]
            tenant = self.parked.get(name)
            if tenant is not None and tenant.wants_to_read:
                self._may_read[name] = None
                count_max = 1 if tenant.read_singly else EVENTS_MAX - len(tenant.events)
                return ReadRequest(name, tenant.read_to, tenant.passed_to, count_max)
        return None

    def take_read(self, request: ReadRequest, events: Sequence[T], *, complete: bool) -> Sequence[T]:
        """Take messages; `complete`: the stream has no others up to the requested place.

        Returns those that are kept: none if the tenant has shed events since, or is or was evicted.
        """
        tenant = self.parked.get(request.tenant)
        if tenant is None or request.above != tenant.read_to or tenant.is_evicted:
            return ()
        for event in events:
            self._keep(tenant, event)
            tenant.read_to = event.position
        if complete:
            tenant.read_to = request.up_to
        self._tidy(request.tenant, tenant)
        return events

    # ---- eviction

    def evict(self, name: str, below: int) -> list[T]:
        """Let the events of a parked tenant below a position become dead letters, except those in flight.

        Returns the events that are dropped from memory for that.
        """
        tenant = self.parked.get(name)
        if tenant is None:
            return []
        first = tenant.unmatched[0].position if tenant.unmatched else tenant.read_to + 1
        if first > min(below - 1, self.highest):
            return []
        dropped = self._leave_unmatched(name, tenant, 0)
        tenant.evicted_to = max(tenant.evicted_to, min(below - 1, tenant.passed_to))
        self._being_evicted[name] = None
        return dropped

    def next_to_evict(self) -> ReadRequest | None:
        """The next events to become dead letters: the tenants to be evicted take turns."""
        while self._being_evicted:
            name = next(iter(self._being_evicted))
            del self._being_evicted[name]
            tenant = self.parked.get(name)
            if tenant is not None and tenant.is_evicted:
                self._being_evicted[name] = None
                return ReadRequest(name, tenant.read_to, tenant.evicted_to, EVENTS_MAX)
        return None

    def note_buried(self, request: ReadRequest, up_to: int, events: int) -> Evicted | None:
        """Note that these events, all up to `up_to`, have their dead letters.

        Returns what became of the order if this was its end.
        """
        tenant = self.parked[request.tenant]
        tenant.read_to = up_to
        tenant.evicted_count += events
        if tenant.is_evicted:
            return None
        evicted, tenant.evicted_count = Evicted(request.tenant, up_to, tenant.evicted_count), 0
        self._may_read[request.tenant] = None
        self._tidy(request.tenant, tenant)
        return evicted

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
            tenant = self.by_name[name]
            tenant.waits_for_token = False
            self._to_match.append(name)
            if tenant.parked:
                self._may_read[name], self.is_read_again = None, True
        while self._to_match:
            name = self._to_match.popleft()
            tenant = self.by_name[name]
            if not tenant.unmatched:  # They were left to the stream, and may be read again.
                tenant.queued_to_match = False
                self._tidy(name, tenant)
                continue
            is_waived = tenant.unmatched[0].position <= tenant.waived_to
            if not is_waived and (token_at := self._rates.take(name, now)):
                tenant.waits_for_token = True
                heappush(self._without_token, (token_at, name))
                continue
            tenant.queued_to_match = False
            return tenant.unmatched.popleft()
        return None

    def shed(self, may_park: Callable[[str], bool], *, kept: int = 1) -> list[T]:
        """Drop the queued events of tenants above their rate, except the next `kept` of each.

        They stay in the stream. Returns the dropped events. `may_park`: as for `admits`, by name. `kept`: 0
        if the memory that the next events take is short, too.
        """
        dropped = list[T]()
        for _, name in self._without_token:
            tenant = self.by_name[name]
            if len(tenant.unmatched) <= kept or tenant.unmatched[0].position > self.highest:
                continue
            if not (tenant.parked or (may_park(name) and len(self.parked) < PARKED_MAX)):
                continue
            if not tenant.parked:
                self._park(name, tenant, passed_to=self.highest, read_to=tenant.read_to)
            dropped += self._leave_unmatched(name, tenant, kept)
            tenant.read_singly = tenant.read_singly or not kept
        return dropped

    def _leave_unmatched(self, name: str, tenant: TenantInMemory[T], kept: int) -> list[T]:
        """Leave the events of a parked tenant that are not matched to the stream, except the first ones."""
        unmatched = list(tenant.unmatched)
        dropped = unmatched[kept:]
        if dropped:
            self._pass(name, tenant, max(tenant.passed_to, min(dropped[-1].position, self.highest)))
            for event in dropped:
                del tenant.events[event.position]
                tenant.bytes -= event.size
            tenant.unmatched = deque(unmatched[:kept])
            tenant.read_to = dropped[0].position - 1
        return dropped

    def waive_tokens(self, came_before: float, may_park: Callable[[str], bool]) -> bool:
        """Let tenants that cannot be parked route events that waited longer than this without a token.

        Others wait for these. Returns whether there are any. `may_park`: as for `admits`, by name.
        """
        still = list[tuple[float, str]]()
        for token_at, name in self._without_token:
            tenant = self.by_name[name]
            can_park = tenant.parked or (may_park(name) and len(self.parked) < PARKED_MAX)
            if can_park or not tenant.unmatched or tenant.unmatched[0].came_at > came_before:
                still.append((token_at, name))
            else:
                tenant.waits_for_token, tenant.waived_to = False, tenant.unmatched[-1].position
                self._to_match.append(name)
        heapify(still)
        is_any = len(still) < len(self._without_token)
        self._without_token = still
        return is_any

    @property
    def next_token_at(self) -> float | None:
        """The time at which the first tenant that is above its rate has a token; None if none is."""
        return self._without_token[0][0] if self._without_token else None

    def match_later(self, event: T) -> None:
        """Take back an event whose matching continues in its tenant's next turn; it needs no second token."""
        tenant = self.by_name[event.tenant]
        tenant.unmatched.appendleft(event)
        tenant.waived_to = max(tenant.waived_to, event.position)
        self._queue_to_match(event.tenant, tenant)

    def hold(self, event: T) -> None:
        """Match no more events of the tenant until `release`: it is not known yet whether this one counts."""
        self.by_name[event.tenant].queued_to_match = True

    def release(self, event: T) -> None:
        self.by_name[event.tenant].queued_to_match = False

    def note_matched(self, event: T, copies: int) -> None:
        """Note the number of copies of an event, as `next_to_match` returned it."""
        tenant = self.by_name[event.tenant]
        tenant.copies += copies
        self._queue_to_match(event.tenant, tenant)

    def note_copy_stored(self, event: T) -> None:
        """Note that a copy of the event is stored."""
        tenant = self.by_name[event.tenant]
        tenant.copies -= 1
        self._queue_to_match(event.tenant, tenant)

    def end_event(self, event: T) -> bool:
        """Note that all copies of the event are stored; returns whether its tenant wants to read on."""
        tenant = self.by_name[event.tenant]
        del tenant.events[event.position]
        tenant.bytes -= event.size
        self.holding_back.pop(event.position, None)
        if tenant.parked:
            self._may_read[event.tenant] = None
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
