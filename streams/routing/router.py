"""The router of one partition: sends a copy of each event, in the order of the stream, to each subscriber.

Lanes keep a producer's order even if messages are lost (`streams.routing.lanes`): a receiver has at most
one unconfirmed copy, and the next one waits. So, for each receiver, copies are in the deliveries in the order
of their sources. A copy whose source is not above the highest that its actor has seen is a duplicate, however
late it comes and no matter which router sent it. Copies therefore carry their source and no `Nats-Msg-Id`,
which would help for two minutes only.

Every flush of the shard's journal says how far its partition is *routed*: the end of the unbroken run of
events whose copies are all confirmed, except those of parked tenants, whose positions it names, too
(`streams.routing.tenants`). A new owner routes everything above again, and its copies are duplicates where
the old owner's were stored. A router gives a copy to the connection only within its lease: the event may be
erased after another owner has routed it, and no copy may come then.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import assert_never

from msgspec.structs import asdict, replace

from actors.ids import is_tenant
from actors.machine.event import Event
from streams.dead_letters.malformed import MALFORMED_RECEIVER, bury_malformed
from streams.installation.topology import Names
from streams.journal.routing_progress import RoutingProgress
from streams.lost_tails.marks import UNKNOWN_MARKS, Mark, Marks
from streams.nats.answers import Answer, Put, Refused, Stored, StoredMessage, Unanswered
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from streams.reading.reader import Reader, ReadingTerms
from streams.reading.reply_subject import DeliveryInfo
from streams.routing.ahead_reader import AheadReader
from streams.routing.fanout import event_of_message, published_event
from streams.routing.lanes import Lanes
from streams.routing.node_routing import Routing
from streams.routing.parked_tenants_reader import ParkedTenantsReader
from streams.routing.read_requests import PartitionReads, ReadRequest
from streams.routing.routed_events import EventInMemory, UnrecordedRoutings, routed_event
from streams.routing.tenant_rates import TenantRates
from streams.routing.tenants import Tenants
from streams.routing.unrouted_burial import UnroutedBurial
from streams.tasks import cancel_and_wait, on_defect
from streams.timed.due_publisher import DuePublisher
from streams.timed.entries import DueVerdict, event_to_route
from streams.timed.timed_events import LANE, TOO_LARGE, TimedEvents

EVENT_BYTES_MAX = 4 << 20
"""Memory of the events of one partition above which no more are requested."""

COPY_BYTES = 96
"""Approximate bytes of a copy in addition to its event."""

COPIES_AT_ONCE = 256
"""Copies under way at a time in all partitions of a node, so that large ones do not fill the memory."""

IN_A_ROW_MAX = 32
"""Events and copies that are matched before other work has a turn. After an event of a parked tenant, other
work gets a turn at once; otherwise it would wait for the copies of a flood."""

STEPS_A_COPY = 150
"""Steps of filters that count as one copy: some 20 microseconds."""

MATCHED_IN_A_ROW = 1000
"""Receivers of one event that are matched before other work has a turn; they take a millisecond."""

WAITING_MAX_S = 2.0
"""Time for which an event may keep `routed` back; beyond it, its tenant parks. Only routed events are acked,
and the consumer of the partition stops if too much is not acked."""

PULL_BATCH = 256
"""Events requested at a time. All of them arrive, even when the reader is held. With 64, a copy costs 7 %
more CPU, and others wait as long during a flood."""

log = logging.getLogger(__name__)

LEASE_OVER = "the lease of this node has expired"


class Router:
    """The router of one partition, under one claim of the shard with the same number.

    - `epoch`: of the claim; `recorded`: returns how far the journal says that the partition is routed.
    - `replicated`: the streams have replicas, so that a leader's answer may need a proof.
    - `on_progress`: called for each new event, and whenever one is routed or read.
    - `terms`: of the reading; `created` is when the stream was created whose sources the shard's actors know,
      and `may_read` is asked also before each copy.
    - `known_marks`: the highest messages that the shard knows, and the offsets of its sources.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        partition: int,
        routing: Routing,
        terms: ReadingTerms,
        *,
        epoch: int,
        recorded: Callable[[], RoutingProgress],
        on_progress: Callable[[], None] = lambda: None,
        known_marks: Marks = UNKNOWN_MARKS,
        replicated: bool = False,
    ) -> None:
        self._js = js
        self._names = names
        self._routing = routing
        self._within_lease, self._recorded = terms.may_read, recorded
        self._unrecorded = UnrecordedRoutings()
        settings = routing.tenant_settings
        self._tenants: Tenants[EventInMemory] = Tenants(recorded(), TenantRates(settings.limit))
        self._matchable = asyncio.Event()
        self._parking_timer: asyncio.TimerHandle | None = None
        self._token_timer: asyncio.TimerHandle | None = None
        self._bytes = 0
        self._on_broken = terms.on_broken
        self._on_progress = on_progress
        self._known_marks = known_marks
        self._lanes = Lanes(
            js, self._begin_copy, self._confirmed, terms.on_broken, routing.copies, settings.weight
        )
        # While NATS takes no entries, those that wait take no sender of the copies.
        self._entry_lanes = Lanes(
            js, self._begin_entry, self._confirmed, terms.on_broken, routing.entries, settings.weight
        )
        self._burying: set[asyncio.Task[str]] = set()
        self._taken: deque[tuple[EventInMemory, DueVerdict]] = deque()
        due_publisher = DuePublisher(
            js, names, partition,
            wall=routing.wall, may_publish=terms.may_read, tenants=routing.subscribed_tenants,
            partitions=routing.partitions, on_broken=terms.on_broken,
        )  # fmt: skip
        self._timed_events = TimedEvents(js, names, partition, due_publisher, terms.on_broken)
        self._matching: asyncio.Task[None] | None = None
        self._reader = Reader(
            js,
            names.events,
            names.route_consumer(partition, epoch),
            names.events_of(partition),
            terms,
            on_message=self._on_message,
            after=lambda: recorded().routed,
            known_mark=lambda: known_marks.events,
            batch=PULL_BATCH,
        )
        reads = PartitionReads(js, names, partition, self._reader, routing.readers, terms.on_broken)
        pages = partial(ParkedTenantsReader, reads, replicated=replicated)
        self._parked_reader = pages(next_read=self._next_read, take_read=self._take_read)
        self._eviction_reader = pages(next_read=self._tenants.next_to_evict, take_read=self._bury_unrouted)
        self._burial = UnroutedBurial(js, names, routing, may_bury=terms.may_read)
        self._ahead_reader = AheadReader(
            reads,
            tenants=routing.subscribed_tenants,
            partitions=routing.partitions,
            next_ahead=self._next_ahead,
            take_ahead=self._take_ahead,
        )

    async def start(self) -> None:
        """Begin to route."""
        self._matching = asyncio.ensure_future(self._match())
        self._matching.add_done_callback(on_defect("router", self._on_broken))
        await self._reader.start()
        self._parked_reader.start()
        self._eviction_reader.start()
        self._ahead_reader.start()
        self._timed_events.start()

    def ack(self, position: int) -> None:
        """Ack the events up to the position; the journal must hold that they are routed."""
        self._reader.ack(position)
        if self._routing.on_routed is not None:
            self._unrecorded.recorded(self._recorded())

    async def stop(self) -> None:
        """Route nothing more. The next owner routes unconfirmed events again."""
        matching, self._matching = self._matching, None
        await cancel_and_wait(matching)
        for timer in (self._parking_timer, self._token_timer):
            if timer is not None:
                timer.cancel()
        await self._parked_reader.stop()
        await self._eviction_reader.stop()
        await self._ahead_reader.stop()
        await self._timed_events.stop()
        await self._lanes.stop()
        await self._entry_lanes.stop()
        await cancel_and_wait(*self._burying)
        await self._reader.stop()

    @property
    def unread(self) -> int:
        """The number of events of the partition that wait to be read."""
        return self._reader.unread

    @property
    def mark(self) -> Mark:
        """The highest event that this router ever took, or that was known before."""
        return self._reader.mark

    @property
    def progress(self) -> RoutingProgress:
        """The progress of routing; `routed` never falls."""
        return self._tenants.progress

    # ---- events

    def _on_message(self, message: Message, info: DeliveryInfo) -> None:
        if info.position > self._tenants.highest:
            address = self._names.address_of_event(message.subject)
            tenant = address.partition(".")[0]
            if self._tenants.recognise(tenant, info.position):
                self._plan_parking(WAITING_MAX_S)
            elif self._tenants.admits(tenant, may_park=is_tenant(tenant)):
                event = published_event(info.position, info.stored_at, address, message.headers, message.data)
                self._tenants.add(waiting := self._in_memory(tenant, event))
                self._charge(waiting.size)
                self._matchable.set()
                self._plan_parking(WAITING_MAX_S)
            else:
                self._tenants.drop(tenant, info.position)
                self._parked_reader.wake()
            self._ahead_reader.arrived(info.pending, bool(self._tenants.parked))
            self._on_progress()

    def _in_memory(self, tenant: str, event: Event) -> EventInMemory:
        """The event, which comes into memory now."""
        source = self._known_marks.source(event.position)
        return EventInMemory(tenant, event, source, self._routing.freshness.now())

    def _read_event(self, tenant: str, message: StoredMessage) -> EventInMemory:
        return self._in_memory(tenant, event_of_message(self._names, message))

    async def _match(self) -> None:
        """Match the events that have come, in the order of each tenant, with fresh configurations."""
        in_a_row = 0
        while True:
            await self._matchable.wait()
            self._matchable.clear()
            freshness = self._routing.freshness
            while (waiting := self._next_to_distribute()) is not None:
                await freshness.cover(waiting.came_at)
                done, steps = await self._select(waiting)
                if not done:
                    self._tenants.match_later(waiting)
                    await asyncio.sleep(0)
                    continue
                await self._distribute(waiting)
                in_a_row += 1 + waiting.copies + steps // STEPS_A_COPY
                if in_a_row >= IN_A_ROW_MAX or waiting.tenant in self._tenants.parked:
                    in_a_row = 0
                    await asyncio.sleep(0)
            for kept in (1, 0):
                if self._bytes > EVENT_BYTES_MAX:
                    self._drop(self._tenants.shed(is_tenant, kept=kept))
            if self._bytes > EVENT_BYTES_MAX and self._tenants.waive_tokens(freshness.now(), is_tenant):
                self._matchable.set()
            if self._tenants.is_read_again:
                self._tenants.is_read_again = False
                self._parked_reader.wake()
            self._plan_token()

    def _next_to_distribute(self) -> EventInMemory | None:
        """The next event whose copies can be made; while it is not known whether a due one counts, others."""
        while True:
            if self._taken:
                waiting, verdict = self._taken.popleft()
                self._tenants.release(waiting)
                if (event := event_to_route(waiting.event, verdict)) is not None:
                    waiting.event = event
                    return waiting
                self._tenants.note_matched(waiting, 0)
                self._forget(waiting)
                continue
            next_one = self._tenants.next_to_match(self._routing.freshness.now())
            if next_one is None or not next_one.event.due:
                return next_one
            self._tenants.hold(next_one)
            self._timed_events.begin_take(next_one.tenant, next_one.event, partial(self._took, next_one))

    def _took(self, waiting: EventInMemory, verdict: DueVerdict) -> None:
        self._taken.append((waiting, verdict))
        self._matchable.set()

    def _plan_token(self) -> None:
        """Match again when the first tenant that is above its rate has a token."""
        if self._token_timer is not None:
            self._token_timer.cancel()
            self._token_timer = None
        if (token_at := self._tenants.next_token_at) is not None:
            delay_s = token_at - self._routing.freshness.now()
            self._token_timer = asyncio.get_running_loop().call_later(delay_s, self._matchable.set)

    async def _select(self, waiting: EventInMemory) -> tuple[bool, int]:
        """Select the receivers: True if that is done, False if it continues in the tenant's next turn.

        Also returns the steps that were taken since other work had a turn.
        """
        if waiting.event.malformed or waiting.event.deliver_at or waiting.event.only_for:
            return True, 0
        if waiting.selection is None:
            waiting.selection = self._routing.selection(waiting.tenant, waiting.event)
        done = waiting.selection.is_complete or await waiting.selection.advance()
        return done, waiting.selection.steps_in_a_row

    async def _distribute(self, waiting: EventInMemory) -> None:
        event, totals = waiting.event, self._routing.totals
        if event.deliver_at:
            self._store_until_due(waiting)
            return
        self._routing.count_event(waiting.tenant)
        selection, waiting.selection = waiting.selection, None
        if event.only_for and not event.malformed:
            lanes: tuple[str, ...] = (f"{waiting.tenant}.{event.only_for}",)
        elif selection is None:
            totals.malformed += 1
            lanes = (f"{waiting.tenant}.{MALFORMED_RECEIVER}",)
        else:
            lanes = selection.receivers
            totals.unmatched += selection.is_unmatched
        waiting.copies = waiting.unconfirmed = len(lanes)
        self._charge(len(lanes) * COPY_BYTES)
        self._tenants.note_matched(waiting, len(lanes))
        for number, lane in enumerate(lanes, 1):
            self._lanes.add(lane, waiting)
            if number % MATCHED_IN_A_ROW == 0:
                await asyncio.sleep(0)
        if not lanes:
            self._ahead_reader.unmatched(waiting.size)
            self._end_routing(waiting)

    def _store_until_due(self, waiting: EventInMemory) -> None:
        waiting.copies = waiting.unconfirmed = 1
        self._charge(COPY_BYTES)
        self._tenants.note_matched(waiting, 1)
        self._entry_lanes.add(f"{waiting.tenant}.{LANE}", waiting)

    def _end_routing(self, waiting: EventInMemory) -> None:
        if self._routing.on_routed is not None and not waiting.event.deliver_at:
            when_recorded = self._routing.on_routed(routed_event(waiting, self._source(waiting)))
            if when_recorded is not None:
                self._unrecorded.add(waiting.tenant, waiting.position, when_recorded)
        self._forget(waiting)

    def _forget(self, waiting: EventInMemory) -> None:
        if self._tenants.end_event(waiting):
            self._parked_reader.wake()
        self._charge(-waiting.size - waiting.copies * COPY_BYTES)
        self._on_progress()

    def _source(self, waiting: EventInMemory) -> int:
        return self._known_marks.source(waiting.position)

    def _drop(self, events: Sequence[EventInMemory]) -> None:
        """Give the memory of events back that are left to the stream."""
        if events:
            self._charge(-sum(event.size for event in events))

    def _charge(self, size: int) -> None:
        """Charge memory of events, or give it back; while it is too much, ask for no more events."""
        before, self._bytes = self._bytes, self._bytes + size
        if (before > EVENT_BYTES_MAX) != (self._bytes > EVENT_BYTES_MAX):
            self._reader.set_pulling_paused(self._bytes > EVENT_BYTES_MAX)
            self._parked_reader.wake()

    # ---- parked tenants

    def _plan_parking(self, delay_s: float) -> None:
        """Look after that time for events that keep `routed` back, unless that is planned."""
        if self._parking_timer is None:
            self._parking_timer = asyncio.get_running_loop().call_later(delay_s, self._park_overdue)

    def _park_overdue(self) -> None:
        """Park tenants whose events keep `routed` back for too long."""
        self._parking_timer, now = None, self._routing.freshness.now()
        while (event := self._tenants.first_holding_back) is not None:
            if (left_s := event.came_at + WAITING_MAX_S - now) > 0:
                self._plan_parking(left_s)
                return
            if not self._tenants.park(event.tenant, may_park=is_tenant(event.tenant)):
                if self._tenants.waive_tokens(now - WAITING_MAX_S, is_tenant):
                    self._matchable.set()
                self._plan_parking(WAITING_MAX_S / 4)
                return
            self._on_progress()

    def _next_read(self) -> ReadRequest | None:
        return None if self._bytes > EVENT_BYTES_MAX else self._tenants.next_read()

    async def _take_read(self, request: ReadRequest, found: Sequence[StoredMessage], complete: bool) -> None:
        events = [self._read_event(request.tenant, each) for each in found]
        kept = self._tenants.take_read(request, events, complete=complete)
        self._charge(sum(event.size for event in kept))
        self._matchable.set()
        self._on_progress()

    # ---- eviction

    def evict_unrouted(self, tenant: str, below: int) -> None:
        """Make the events of a parked tenant ("": of each) that wait below a position dead letters."""
        for name in [tenant] if tenant else list(self._tenants.parked):
            self._drop(self._tenants.evict(name, below))
        self._eviction_reader.wake()

    async def _bury_unrouted(
        self, request: ReadRequest, found: Sequence[StoredMessage], complete: bool
    ) -> None:
        to_bury = list[tuple[StoredMessage, Event, Mapping[str, str]]]()
        for message in found:
            waiting = self._read_event(request.tenant, message)
            if (event := await self._timed_events.event_to_bury(request.tenant, waiting.event)) is not None:
                to_bury.append((message, event, waiting.headers))
        await self._burial.bury(request.tenant, to_bury)
        self._routing.totals.evicted += len(to_bury)
        self._routing.totals.malformed += sum(bool(event.malformed) for _, event, _ in to_bury)
        up_to = request.up_to if complete else found[-1].position
        if (evicted := self._tenants.note_buried(request, up_to, len(to_bury))) is not None:
            log.warning("routing.evicted", extra=asdict(evicted))
            self._parked_reader.wake()
        self._on_progress()

    # ---- reading ahead

    def _next_ahead(self, tenant: str) -> ReadRequest | None:
        return None if self._bytes > EVENT_BYTES_MAX else self._tenants.next_ahead(tenant)

    def _take_ahead(self, request: ReadRequest, found: Sequence[StoredMessage]) -> None:
        # Their copies have higher sources than anything that arrives: their loss must be noticed, too.
        self._reader.note(Mark(position=found[-1].position, stored_at=found[-1].stored_at))
        events = [self._read_event(request.tenant, each) for each in found]
        kept = self._tenants.take_ahead(request, events)
        self._charge(sum(event.size for event in kept))
        self._matchable.set()
        self._on_progress()

    # ---- copies

    def _begin_copy(self, receiver: str, waiting: EventInMemory, ended: Callable[[str], None]) -> None:
        """Publish a copy; calls `ended` with an empty text when it is confirmed, or why it is not."""
        if not self._within_lease():
            ended(LEASE_OVER)
        elif waiting.event.malformed:
            self._bury(receiver, waiting, ended)
        else:
            put = Put(self._names.publish_to(receiver), waiting.event.body, waiting.headers)
            self._js.begin_publish(put, partial(self._answered, ended))

    def _begin_entry(self, _: str, waiting: EventInMemory, ended: Callable[[str], None]) -> None:
        """Store a timed event as an entry, or bury one that is too large; calls `ended` as for a copy."""
        if waiting.event.malformed or not self._within_lease():
            self._begin_copy(f"{waiting.tenant}.{MALFORMED_RECEIVER}", waiting, ended)
        else:
            stored = partial(self._entry_stored, waiting, ended)
            self._timed_events.begin_store(waiting.tenant, waiting.event, self._source(waiting), stored)

    def _entry_stored(self, waiting: EventInMemory, ended: Callable[[str], None], why: str) -> None:
        if why == TOO_LARGE:
            self._routing.count_event(waiting.tenant)
            self._routing.totals.malformed += 1
            waiting.event = replace(waiting.event, malformed=why, deliver_at=0.0)
            self._begin_entry(LANE, waiting, ended)
        else:
            ended(why)

    def _bury(self, receiver: str, waiting: EventInMemory, ended: Callable[[str], None]) -> None:
        """Store a malformed event as a dead letter."""
        burying = asyncio.ensure_future(bury_malformed(self._js, self._names, receiver, waiting.event))
        self._burying.add(burying)
        burying.add_done_callback(self._burying.discard)
        burying.add_done_callback(on_defect("router", self._on_broken))
        burying.add_done_callback(
            lambda task: ended("stopped" if task.cancelled() or task.exception() else task.result())
        )

    def _answered(self, ended: Callable[[str], None], answer: Answer) -> None:
        match answer:
            case Stored():
                self._routing.totals.copies += 1
                ended("")
            case Refused(code, text):
                ended(f"{text} (JetStream error {code})")
            case Unanswered(why):
                ended(why)
            case _:
                assert_never(answer)

    def _confirmed(self, waiting: EventInMemory) -> None:
        waiting.unconfirmed -= 1
        self._tenants.note_copy_stored(waiting)
        self._matchable.set()
        if not waiting.unconfirmed:
            self._end_routing(waiting)
