"""A partition's tenants, and a list that remembers every event."""

import pytest
from msgspec import Struct

from actors.machine.bucket import RateLimit
from streams.journal.routing_progress import NOTHING_ROUTED
from streams.routing import tenants as module
from streams.routing.read_requests import ReadRequest
from streams.routing.tenant_rates import TenantRates
from streams.routing.tenants import Tenants

TENANTS = ("acme", "beta", "cora")


def limited(**limits: RateLimit) -> TenantRates:
    """The rates of a router that has just started: `cora` has one, unless others are given."""
    return TenantRates((limits or {"cora": RateLimit(0.5, 2)}).get)


class Waiting(Struct, frozen=True):
    tenant: str
    position: int
    size: int = 1
    came_at: float = 0.0


def waiting(tenant: str, position: int) -> Waiting:
    """An event of the naive list; some are large."""
    return Waiting(tenant, position, size=module.BYTES_MAX if position % 5 == 0 else 1)


class World:
    """A partition whose events are numbered from 1; a router that may die, and what it recorded last."""

    def __init__(self) -> None:
        self.stream: list[str] = []
        self.done: set[int] = set()
        self.recorded = NOTHING_ROUTED
        self.matched: dict[int, Waiting] = {}
        self.last_matched: dict[str, int] = {}
        self.kept: dict[int, str] = {}
        self.request: ReadRequest | None = None
        self.burial: ReadRequest | None = None
        self.given_up: set[int] = set()
        self.ahead: list[ReadRequest] = []
        self.tenants = Tenants[Waiting](NOTHING_ROUTED, limited())
        self.now = 0.0

    def publish(self, tenant: str) -> None:
        self.stream.append(tenant)

    def arrive(self) -> None:
        position = self.tenants.highest + 1
        if position <= len(self.stream):
            tenant = self.stream[position - 1]
            if self.tenants.recognise(tenant, position):
                return
            if self.tenants.admits(tenant, may_park=True):
                self.tenants.add(waiting(tenant, position))
                self.keep(tenant, position)
            else:
                self.tenants.drop(tenant, position)

    def match(self) -> None:
        self.now += 0.25
        event = self.tenants.next_to_match(self.now)
        if event is not None:
            assert event.position > self.last_matched.get(event.tenant, 0), "twice, or out of order"
            assert event.position not in self.given_up, "it has its letters"
            self.last_matched[event.tenant] = event.position
            self.matched[event.position] = event
            self.tenants.note_matched(event, 1)

    def match_a_part(self) -> None:
        """Begin with the next event, which goes on in its tenant's next turn."""
        event = self.tenants.next_to_match(self.now)
        if event is not None:
            self.tenants.match_later(event)

    def route(self, chosen: int) -> None:
        if self.matched:
            event = self.matched.pop(sorted(self.matched)[chosen % len(self.matched)])
            self.tenants.note_copy_stored(event)
            self.tenants.end_event(event)
            self.done.add(event.position)
            del self.kept[event.position]

    def keep(self, tenant: str, position: int) -> None:
        self.kept[position] = tenant
        in_memory = list(self.kept.values()).count(tenant)
        assert list(self.tenants.holding_back) == sorted(self.tenants.holding_back)
        assert in_memory <= module.EVENTS_MAX or tenant not in self.tenants.progress.parked_tenants

    def read(self) -> None:
        """Ask for a part of a tenant's events, or take what was asked for; more may arrive in between."""
        request, self.request = self.request, None
        if request is None:
            self.request = self.tenants.next_read()
        else:
            found = [
                each for each in range(request.above + 1, request.up_to + 1) if self.of(each, request.tenant)
            ]
            part = found[: request.count_max]
            events = [waiting(request.tenant, each) for each in part]
            for event in self.tenants.take_read(request, events, complete=part == found):
                self.keep(request.tenant, event.position)

    def read_ahead(self, tenant: str, behind: int) -> None:
        """Ask for a tenant's events above the arrivals, or take them from a replica that is so far behind."""
        if len(self.ahead) < 2:
            request = self.tenants.next_ahead(tenant)
            self.ahead += [request] if request else []
            return
        request = self.ahead.pop(0)
        above, end = request.above, len(self.stream) - behind
        found = [each for each in range(above + 1, end + 1) if self.of(each, request.tenant)]
        before = self.in_memory(request.tenant)
        events = [waiting(request.tenant, each) for each in found[: request.count_max]]
        self.tenants.take_ahead(request, events)
        for each in sorted(self.in_memory(request.tenant) - before):
            self.keep(request.tenant, each)
            assert len(self.in_memory(request.tenant)) <= module.EVENTS_MAX

    def evict(self, tenant: str, up_to: int) -> None:
        """Evict a tenant, as a node does that looks at the whole stream."""
        for event in self.tenants.evict(tenant, up_to + 1):
            del self.kept[event.position]

    def bury(self) -> None:
        """Ask for events to evict, or note that those that were asked for have their letters."""
        request, self.burial = self.burial, None
        if request is None:
            self.burial = self.tenants.next_to_evict()
            return
        assert request.up_to <= self.tenants.highest, "what has not arrived is evicted"
        found = [
            each for each in range(request.above + 1, request.up_to + 1) if self.of(each, request.tenant)
        ]
        part = found[: request.count_max]
        assert all(each > self.last_matched.get(request.tenant, 0) for each in part), "it was matched"
        self.given_up |= {*part}
        self.done |= {*part}
        up_to = request.up_to if part == found else part[-1]
        self.tenants.note_buried(request, up_to, len(part))

    def in_memory(self, tenant: str) -> set[int]:
        known = self.tenants.by_name.get(tenant)
        return set(known.events) if known else set()

    def of(self, position: int, tenant: str) -> bool:
        return self.stream[position - 1] == tenant

    def wait_too_long(self) -> None:
        event = self.tenants.first_holding_back
        if event is not None and self.tenants.park(event.tenant, may_park=True):
            assert self.tenants.first_holding_back != event, "it keeps others back all the same"

    def shed(self, kept: int) -> None:
        """Let memory be short."""
        for event in self.tenants.shed(lambda _: True, kept=kept):
            del self.kept[event.position]

    def waive(self) -> None:
        """Let the tokens of those be waived that cannot be parked."""
        self.tenants.waive_tokens(self.now, lambda _: True)

    def record(self) -> None:
        now, before = self.tenants.progress, self.recorded
        assert now.routed >= before.routed, "`routed` falls"
        for tenant, position in now.parked_tenants.items():
            # Beyond `routed`, events that were routed come again to a new owner.
            lowest = min(before.routed + 1, before.parked_tenants.get(tenant, position))
            assert position >= lowest, "a tenant's position falls"
        for position, tenant in enumerate(self.stream[: now.routed], 1):
            done = position in self.done
            assert done or not now.covers(tenant, position), f"{position} is lost"
            assert done or now.needed_from <= position, f"{position} would be purged"
        for tenant, position in now.parked_tenants.items():
            assert position <= self.tenants.highest, f"the position of {tenant} is beyond what has arrived"
        self.recorded = now

    def take_over(self) -> None:
        """Another router takes over, which routes again what was not recorded."""
        self.tenants, self.matched, self.kept = Tenants[Waiting](self.recorded, limited()), {}, {}
        self.request, self.burial, self.ahead, self.given_up = None, None, [], set()
        self.last_matched = {}

    def rest(self) -> None:
        for _ in range(20 * len(self.stream) + 20):
            self.arrive()
            self.read()
            self.bury()
            self.match()
            self.route(0)


def flooded(*others: str) -> World:
    """A world in which one tenant has had more than there is room for, and then others came."""
    world = World()
    for tenant in (*("acme",) * 5, *others):
        world.publish(tenant)
        world.arrive()
    return world


def bound_soon(patch: pytest.MonkeyPatch) -> None:
    """Set bounds that are reached soon."""
    patch.setattr(module, "EVENTS_MAX", 2)
    patch.setattr(module, "PARKED_MAX", 2)
    patch.setattr(module, "UNCONFIRMED_COPIES_MAX", 2)
