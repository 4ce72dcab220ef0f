"""An owner of one events partition with its router, and the copies as actors would read them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

from actors.machine.numbering import Frontier, Numbered, advance, is_duplicate
from actors.tenant_settings import SettingsByTenant
from streams.buckets.known_configurations import (
    KnownConfigurations,
    letter_marks_of,
    receiver_finder,
    subscriptions_of,
)
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.journal.routing_progress import NOTHING_ROUTED, RoutingProgress
from streams.lost_tails.comparison import Loss
from streams.nats.answers import ConsumerInfo, Stored, StoredMessage
from streams.nats.jetstream import JetStream
from streams.reading.messages import stored_event
from streams.reading.pull_room import PullRoom
from streams.reading.reader import ReadingTerms
from streams.routing.freshness import Freshness
from streams.routing.lanes import CopySlots
from streams.routing.node_routing import EventsByTenant, Routing, RoutingTotals
from streams.routing.routed_events import RoutedEvent
from streams.routing.router import Router
from streams.routing.selection.sending_rules import sending_rules_of
from tests.contract.support.faults import FaultyJetStream, misbehaving
from tests.contract.support.servers import Server
from tests.contract.support.shards import Clocks
from tests.support.installation import SHARDS, shard
from tests.support.waiting import until_true

TENANT = "acme"
PARTITION = partition_of(TENANT, SHARDS)

OpenOwner = Callable[..., Awaitable["Owner"]]

NO_SETTINGS = SettingsByTenant()


class Record(Struct):
    """The content of the journal: who owns the partition, and how far it is routed."""

    epoch: int = 0
    routing: RoutingProgress = NOTHING_ROUTED


class Owner:
    """Routes the tenant's partition over a connection of its own.

    `record`: what its predecessors have recorded.
    `follows`: whether it hears of configurations by itself, or is deaf and has to ask.
    """

    def __init__(
        self,
        js: FaultyJetStream,
        names: Names,
        record: Record | None = None,
        *,
        follows: bool = True,
        within_lease: bool = True,
        tenant_settings: SettingsByTenant = NO_SETTINGS,
        wall: Callable[[], float] = time.time,
        copy_slots: int = 100,
    ) -> None:
        self.record = record or Record()
        self.js = js
        self.clocks = Clocks()
        self.totals = RoutingTotals()
        self.routed_by_tenant = EventsByTenant()
        self.within_lease = within_lease
        self.broken: list[str] = []
        self.losses: list[Loss] = []
        self.routed: list[RoutedEvent] = []
        self.configurations = KnownConfigurations(js, names)
        self._names = names
        self._follows = follows
        subscriptions = subscriptions_of(self.configurations)
        match = receiver_finder(self.configurations, subscriptions)
        freshness = Freshness(js, self.configurations.catch_up, self.clocks)
        self._routing = Routing(
            match, freshness, CopySlots(copy_slots), asyncio.Semaphore(1), self.totals, tenant_settings,
            rules=sending_rules_of(self.configurations).by_receiver,
            subscribed_tenants=lambda: subscriptions.tenants, partitions=SHARDS,
            letter_mark=letter_marks_of(self.configurations),
            routed_by_tenant=self.routed_by_tenant, on_routed=self._on_routed, wall=wall,
        )  # fmt: skip
        self.router = self._new_router()

    def _on_routed(self, event: RoutedEvent) -> Callable[[], None]:
        return lambda: self.routed.append(event)

    def _new_router(self) -> Router:
        self.record.epoch = epoch = self.record.epoch + 1
        return Router(
            self.js, self._names, PARTITION, self._routing,
            ReadingTerms(
                may_read=lambda: self.within_lease, on_broken=self.broken.append, on_lost=self.losses.append,
                room=PullRoom(),
            ),
            epoch=epoch, recorded=lambda: self.record.routing, on_progress=lambda: self._record(epoch),
        )  # fmt: skip

    def _record(self, epoch: int) -> None:
        """Record the progress as the journal does, but at once."""
        record = self.record
        if record.epoch == epoch:
            record.routing = self.router.progress.raised_to(record.routing.routed)
            self.router.ack(record.routing.routed)

    async def start(self) -> None:
        if self._follows:
            await self.configurations.start()
        await self.router.start()

    async def stop(self) -> None:
        await self.router.stop()
        await self.configurations.stop()

    async def own_again(self) -> None:
        """Another ownership, which remembers nothing of the one before."""
        await self.router.stop()
        self.router = self._new_router()
        await self.router.start()

    def published(self, receiver: str) -> list[bytes]:
        """The bodies of all copies that were sent to the receiver, repeats included."""
        return [body for body, _ in self.js.published[self._names.publish_to(receiver)]]


@asynccontextmanager
async def owners(server: Server, names: Names) -> AsyncIterator[OpenOwner]:
    """Opens owners of the partition, one after the other; all are stopped at the end."""
    record = Record()
    async with AsyncExitStack() as stack:

        async def start(**manner: Any) -> Owner:
            owner = Owner(await stack.enter_async_context(misbehaving(server)), names, record, **manner)
            stack.push_async_callback(owner.stop)
            await owner.start()
            return owner

        yield start


async def subscribe(js: JetStream, names: Names, receiver: str, *patterns: str, **more: object) -> None:
    config = {"url": "https://example.com/hook", "events": patterns or (">",)} | more
    assert isinstance(
        await StoredConfigurations(js, names).put(receiver, msgspec.json.encode(config)), Stored
    )


async def announce(
    js: JetStream, names: Names, body: bytes = b"{}", event_type: str = "a", **more: Any
) -> int:
    """Publish an event, as a producer does; returns its position. `more`: `tenant`, `headers`."""
    subject = names.publish_event(more.get("tenant", TENANT), event_type)
    answer = await js.publish(subject, body, more.get("headers"))
    assert isinstance(answer, Stored), answer
    return answer.position


async def announce_many(js: JetStream, names: Names, count: int) -> list[bytes]:
    """Publish that many, in order; returns their bodies."""
    bodies = [b"%d" % each for each in range(count)]
    for body in bodies:
        await announce(js, names, body)
    return bodies


async def copies(js: JetStream, names: Names, receiver: str) -> list[StoredMessage]:
    """All copies that were stored for the receiver, repeats included."""
    return (await js.read(names.deliveries, names.delivery(shard(receiver), receiver), 1, 1000)).messages


async def stored(js: JetStream, names: Names, receiver: str) -> list[bytes]:
    """Their bodies."""
    return [message.data for message in await copies(js, names, receiver)]


async def has_stored(js: JetStream, names: Names, receiver: str, bodies: list[bytes]) -> None:
    """Return when these are all the copies that were stored for the receiver."""

    async def has() -> bool:
        return await stored(js, names, receiver) == bodies

    await until_true(has)


async def accepted(js: JetStream, names: Names, receiver: str) -> list[bytes]:
    """The bodies that the actor would be given, by their sources: its window holds one id only."""
    frontier, bodies = Frontier(size=1), []
    for message in await copies(js, names, receiver):
        event = stored_event(message)
        if not is_duplicate(frontier, event):
            bodies.append(event.body)
            frontier = advance(frontier, Numbered(
                sequence=frontier.sequence + 1, position=event.position, id=event.id,
                stored_at=event.stored_at, again=event.again, source=event.source,
            ))  # fmt: skip
    return bodies


async def consumer_of(js: JetStream, names: Names) -> ConsumerInfo | None:
    """The newest consumer of the events partition."""
    prefix = names.route_consumer(PARTITION, 0).removesuffix("0")
    found = {each.name: each for each in await js.consumers(names.events) if each.name.startswith(prefix)}
    newest = max(found, key=lambda name: [int(part) for part in name.split("-")[2:]], default="")
    return found.get(newest)


async def settled(js: JetStream, names: Names, floor: int, unacked: int = 0) -> None:
    """Return when the events partition is acked up to `floor`, and a number of events beyond it is not."""

    async def acked() -> bool:
        info = await consumer_of(js, names)
        return info is not None and (info.ack_floor, info.unacked) == (floor, unacked)

    await until_true(acked)
