"""The router of one partition: sends a copy of each event, in the order of the stream, to each subscriber.

Lanes keep a producer's order whatever is lost on the way (`streams.routing.lanes`): a receiver has at most
one unconfirmed copy, and the next one waits. So, for each receiver, copies are in the deliveries in the order
of their sources. A copy whose source is not above the highest that its actor has seen is a duplicate, however
late it comes and no matter which router sent it. Copies therefore carry their source and no `Nats-Msg-Id`,
which would help for two minutes only.

An event is acked when all its copies are confirmed. As every ack follows that, recovery may begin at the
server's own ack floor, and a new owner needs to remember nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from actors.machine.event import Event
from streams.dead_letters.malformed import MALFORMED_RECEIVER, bury_malformed
from streams.defects import on_defect
from streams.installation.topology import Names, route_consumer
from streams.journal.tails import UNKNOWN_MARKS, Loss, Mark, Marks
from streams.nats.answers import Refused, Stored, Unanswered
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from streams.reading.delivered import place
from streams.reading.reader import Reader
from streams.routing.fanout import copy_headers, published_event
from streams.routing.freshness import Freshness
from streams.routing.lanes import Lanes

OPEN_BYTES_MAX = 4 << 20
"""Memory of the open events of one partition above which no more are requested."""

COPY_BYTES = 96
"""Approximate bytes of a copy in addition to its event."""

COPIES_MAX = 256
"""Copies under way at a time in all partitions of a node, so that large ones do not fill the memory."""

MATCHED_IN_A_ROW = 1000
"""Receivers of one event that are matched before other work has a turn; they take a millisecond."""

PULL_BATCH = 64
"""Events requested at a time; they all come, however much memory they take."""


class RoutingTotals(Struct):
    """Totals of a node's routers. An event counts again if another owner routes it again."""

    events: int = 0
    copies: int = 0
    unmatched: int = 0
    malformed: int = 0


class Routing(Struct, frozen=True):
    """State that a node's routers share. `match` returns the tenant's receivers that subscribe to a type."""

    match: Callable[[str, str], tuple[str, ...]]
    freshness: Freshness
    copies: asyncio.Semaphore
    totals: RoutingTotals


class _Open:
    """An event that is not matched yet, or has unconfirmed copies."""

    __slots__ = ("came_at", "event", "headers", "left", "reply", "size", "tenant")

    def __init__(self, tenant: str, event: Event, source: int, reply: str, came_at: float) -> None:
        self.tenant = tenant
        self.event = event
        self.reply = reply
        self.came_at = came_at
        self.headers = copy_headers(event, source)
        self.left = 0
        self.size = event.size


class Router:
    """The router of one partition, under one claim of the shard with the same number.

    - `on_broken`: called with the reason why it routes no more.
    - `created`: when the events stream whose sources the shard's actors know was created.
    - `on_event`: called for each new event.

    The other parameters are those of `Reader`.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        partition: int,
        routing: Routing,
        *,
        on_broken: Callable[[str], None],
        may_reset: Callable[[], bool],
        on_lost: Callable[[Loss], None],
        on_event: Callable[[], None] = lambda: None,
        known: Marks = UNKNOWN_MARKS,
        created: str = "",
    ) -> None:
        self._js = js
        self._names = names
        self._routing = routing
        self._prefix = len(names.event(partition, "", "")) - 1
        self._highest = 0
        self._open: dict[int, _Open] = {}
        self._unmatched: deque[_Open] = deque()
        self._arrived = asyncio.Event()
        self._bytes = 0
        self._on_broken = on_broken
        self._on_event = on_event
        self._known = known
        self._lanes = Lanes(js, self._send, self._confirmed, on_broken)
        self._matching: asyncio.Task[None] | None = None
        self._reader = Reader(
            js,
            names.events,
            route_consumer(names, partition),
            on_message=self._on_message,
            on_broken=on_broken,
            after=lambda: None,
            may_reset=may_reset,
            on_lost=on_lost,
            known=lambda: known.events,
            created=created,
            batch=PULL_BATCH,
        )

    async def start(self) -> None:
        """Begin to route."""
        self._matching = asyncio.ensure_future(self._match())
        self._matching.add_done_callback(on_defect("router", self._on_broken))
        await self._reader.start()

    async def stop(self) -> None:
        """Route nothing more. The next owner routes unconfirmed events again."""
        matching, self._matching = self._matching, None
        if matching is not None:
            matching.cancel()
            await asyncio.wait({matching})
        await self._lanes.stop()
        await self._reader.stop()

    @property
    def mark(self) -> Mark:
        """The highest event that this router ever took, or that was known before."""
        return self._reader.mark

    # ---- events

    def _on_message(self, message: Message) -> int:
        position, stored_at = place(message.reply)
        if position > self._highest:
            address = message.subject[self._prefix :]
            event = published_event(position, stored_at, address, message.headers, message.data)
            self._open_event(event, address.partition(".")[0], message.reply)
            self._highest = position
            self._on_event()
        elif position not in self._open:
            self._reader.ack([message.reply])  # It came before; its ack was lost.
        return position

    def _open_event(self, event: Event, tenant: str, reply: str) -> None:
        source = self._known.source(event.position)
        opened = _Open(tenant, event, source, reply, self._routing.freshness.now())
        self._open[event.position] = opened
        self._count(opened.size)
        self._unmatched.append(opened)
        self._arrived.set()

    async def _match(self) -> None:
        """Match the events that have come, in order, with fresh configurations."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._unmatched:
                await self._routing.freshness.cover(self._unmatched[0].came_at)
                await self._distribute(self._unmatched.popleft())
                await asyncio.sleep(0)

    async def _distribute(self, opened: _Open) -> None:
        event, totals = opened.event, self._routing.totals
        totals.events += 1
        if event.malformed:
            totals.malformed += 1
            lanes: tuple[str, ...] = (f"{opened.tenant}.{MALFORMED_RECEIVER}",)
        else:
            lanes = self._routing.match(opened.tenant, event.type)
        opened.left = len(lanes)
        opened.size += len(lanes) * COPY_BYTES
        self._count(len(lanes) * COPY_BYTES)
        for number, lane in enumerate(lanes, 1):
            self._lanes.add(lane, opened)
            if number % MATCHED_IN_A_ROW == 0:
                await asyncio.sleep(0)
        if not lanes:
            totals.unmatched += 1
            self._close(opened)

    def _close(self, opened: _Open) -> None:
        del self._open[opened.event.position]
        self._count(-opened.size)
        self._reader.ack([opened.reply])

    def _count(self, size: int) -> None:
        """Ask for no more events while the open ones take too much memory."""
        before, self._bytes = self._bytes, self._bytes + size
        if (before > OPEN_BYTES_MAX) != (self._bytes > OPEN_BYTES_MAX):
            self._reader.hold(self._bytes > OPEN_BYTES_MAX)

    # ---- copies

    async def _send(self, receiver: str, opened: _Open) -> str:
        """Publish a copy; returns an empty text when it is confirmed, otherwise the reason why it is not."""
        if opened.event.malformed:
            return await bury_malformed(self._js, self._names, receiver, opened.event)
        async with self._routing.copies:
            answer = await self._js.publish(
                self._names.publish_to(receiver), opened.event.body, opened.headers
            )
        match answer:
            case Stored():
                self._routing.totals.copies += 1
                return ""
            case Refused(code, text):
                return f"{text} (JetStream error {code})"
            case Unanswered(why):
                return why

    def _confirmed(self, opened: _Open) -> None:
        opened.left -= 1
        if not opened.left:
            self._close(opened)
