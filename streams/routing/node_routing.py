"""State that all routers of a node share: configurations, slots, counters."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from actors.ids import is_tenant
from actors.machine.event import Event
from actors.tenant_settings import SettingsByTenant
from streams.clock import SystemTime
from streams.routing.freshness import Freshness
from streams.routing.lanes import CopySlots
from streams.routing.routed_events import RoutedEvent
from streams.routing.selection.receiver_selection import ReceiverSelection
from streams.routing.selection.selection_totals import FailedFilter, SelectionTotals
from streams.routing.selection.sending_rules import SendingRule, SendingRules

LETTERS_AT_ONCE = 32
"""Dead letters of evicted events under way at a time, in all partitions of a node."""

ENTRIES_AT_ONCE = 64
"""Timed events that are stored as entries at a time, in all partitions of a node. Copies have others, and
do not wait while NATS takes no entries."""

COUNTED_TENANTS_MAX = 4096
"""Tenants whose events are counted one by one: any producer may invent names."""


class RoutingTotals(Struct):
    """Totals of a node's routers. An event counts again if another owner routes it again."""

    events: int = 0
    copies: int = 0
    unmatched: int = 0
    malformed: int = 0
    evicted: int = 0
    selections: SelectionTotals = field(default_factory=SelectionTotals)


class EventsByTenant:
    """The number of fan-outs routed by tenant.

    `others`: those of tenants beyond the first 4,096, and of names that no tenant can have.
    """

    __slots__ = ("counts", "others")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.others = 0

    def add_new(self, tenant: str) -> None:
        """Count the first event of a tenant that has no count yet."""
        if len(self.counts) < COUNTED_TENANTS_MAX and is_tenant(tenant):
            self.counts[tenant] = 1
        else:
            self.others += 1


class Routing(Struct, frozen=True):
    """State that a node's routers share.

    - `match`: returns the tenant's receivers that subscribe to a type, and existed when the event was stored.
    - `rules`: returns the rules of the tenant's receivers that have one, as of the same moment.
    - `tenant_settings`: weights and rates.
    - `subscribed_tenants`: returns the tenants whose receivers subscribe to anything, of all partitions.
    - `wall`: the time in seconds since the epoch, by which events are due.
    - `entries`: the slots of timed events that are being stored, as `copies` are those of copies.
    - `letters`: bounds the dead letters of evicted events.
    - `letter_mark`: returns the mark that such a letter has for the receiver's transform; empty without one.
    - `on_filter_failure`: called for each filter that cannot be evaluated. It must neither block nor raise.
    - `on_routed`: called for each event once its copies are stored; returns what is to be called once that
      is recorded, if anything. Both must neither block nor raise.
    """

    match: Callable[[str, str, float], tuple[str, ...]]
    freshness: Freshness
    copies: CopySlots
    readers: asyncio.Semaphore
    totals: RoutingTotals
    tenant_settings: SettingsByTenant = SettingsByTenant()
    rules: Callable[[str], Mapping[str, SendingRule]] = SendingRules().by_receiver
    subscribed_tenants: Callable[[], Sequence[str]] = tuple
    partitions: int = 1
    wall: Callable[[], float] = SystemTime.wall
    routed_by_tenant: EventsByTenant = field(default_factory=EventsByTenant)
    entries: CopySlots = field(default_factory=lambda: CopySlots(ENTRIES_AT_ONCE))
    letters: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LETTERS_AT_ONCE))
    letter_mark: Callable[[str], str] = lambda receiver: ""
    on_filter_failure: Callable[[FailedFilter], None] = lambda failed: None
    on_routed: Callable[[RoutedEvent], Callable[[], None] | None] | None = None

    def count_event(self, tenant: str) -> None:
        """Count an event of the tenant that is routed."""
        self.totals.events += 1
        counts = self.routed_by_tenant.counts
        if tenant in counts:
            counts[tenant] += 1
        else:
            self.routed_by_tenant.add_new(tenant)

    def selection(self, tenant: str, event: Event) -> ReceiverSelection:
        """The selection among the receivers that subscribe to an event.

        An event about an alert is not for the receiver that it is about: one that is down would get an event
        about each of its own alerts.
        """
        receivers = self.match(tenant, event.type, event.stored_at)
        if event.about:
            receivers = tuple(each for each in receivers if each != event.about)
        rules, totals = self.rules(tenant), self.totals.selections
        return ReceiverSelection(event, receivers, rules, totals, self.on_filter_failure)
