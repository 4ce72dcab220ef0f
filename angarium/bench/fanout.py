"""`angarium bench fanout`: copies that one node routes, and what a very wide event costs other tenants.

A server, a node and a sink in processes of their own. Routing is measured with receivers that are paused, so
that copies are routed, stored and taken note of, and nothing more; then with receivers that get them at the
same time. A copy counts when it is stored.
"""

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Self

import click
import msgspec
from msgspec import Struct

from angarium.bench.harness import SECRET, SHARDS, Bench, Harness, harness
from angarium.bench.measuring.usage import usage
from angarium.bench.publishing import body, run_all, stored
from angarium.bench.sink import Report
from angarium.development.local_node import LocalNode
from streams.installation.partitions import partition_of
from streams.installation.topology import consumer_for_claim
from streams.nats.answers import StoredMessage
from streams.nats.protocol import publish_answer
from streams.nats.wire import Message
from streams.nats.wire_names import EVENT_SOURCE
from streams.routing.fanout import copy_headers, published_event
from streams.routing.lanes import SENDERS_MAX

BENCH_EVENT_TYPE = "bench.fanout"
STILL, LIVE, WIDE, BARE = "still", "live", "wide", "bare"
"""Tenants: with paused receivers, with receivers that get copies, with one very wide event, and unknown."""

NEIGHBOUR_TENANTS = 10
NEIGHBOURS_EVERY_S = 0.01
UNDER_WAY_MAX = 1000
PROGRESS_POLL_S = 0.01
GIVE_UP_AFTER_S = 30.0


class FanoutPlan(Struct, frozen=True, kw_only=True):
    """A plan: `copies` to a number of `receivers` of a tenant, with bodies of `size` bytes.

    Then one event for `wide` receivers, during the events of other tenants, which are timed for `timed_s`
    without it and with it.
    """

    receivers: int = 1000
    copies: int = 50_000
    wide: int = 20_000
    size: int = 1000
    shards: int = SHARDS
    timed_s: float = 5.0

    @property
    def events(self) -> int:
        """The number of events for all copies, rounded up."""
        return -(-self.copies // self.receivers)


class FanoutFigures(Struct, frozen=True, kw_only=True):
    """Results. Rates are a second; `cpu_us_per_copy` and `memory_mb` are the node's.

    `server` is what the server takes of the same copies from a client that does not wait for each of them,
    `lanes` from one that has as many under way as the router. `neighbours_…` is how late the events of other
    tenants arrive, at p50 and at worst; `…_beside_ms` while one event is routed to `wide` receivers, for
    which that takes `wide_ms`.
    """

    receivers: int
    copies: int
    wide: int
    copies_per_s: float
    copies_per_s_delivered: float
    server: float
    lanes: float
    cpu_us_per_copy: float | None
    memory_mb: float | None
    wide_ms: float
    neighbours_p50_ms: float
    neighbours_worst_ms: float
    neighbours_during_p50_ms: float
    neighbours_during_worst_ms: float
    lost: int
    repeats: int
    disordered: int


class Routed(Struct, frozen=True):
    """Copies stored per second, and what the node used for each."""

    rate: float
    cpu_us: float | None
    memory_mb: float | None


class WrongCopies(Struct, frozen=True, kw_only=True):
    """Numbers of wrong copies, of one receiver or of several."""

    lost: int = 0
    repeats: int = 0
    disordered: int = 0

    @classmethod
    def of(cls, sources: list[int]) -> Self:
        """Judges a receiver's copies by the positions of their events."""
        disordered = sum(after < before for before, after in itertools.pairwise(sources))
        return cls(repeats=len(sources) - len(set(sources)), disordered=disordered)


class FanoutBench(Bench[FanoutPlan]):
    """One run over one server and one sink. `on_step` is called with each step."""

    def __init__(self, plan: FanoutPlan, harness: Harness, on_step: Callable[[str], None]) -> None:
        super().__init__(plan, harness, on_step)
        self._neighbours = _neighbours(WIDE, NEIGHBOUR_TENANTS, self._shards)

    async def run(self) -> FanoutFigures:
        """Measure. Raises click.ClickException if something was not accepted, or came to a halt."""
        plan, on_step = self._plan, self._on_step
        on_step(f"configure {2 * plan.receivers + plan.wide} receivers")
        await self._configure()
        node = self._harness.node()
        try:
            await node.start()
            await node.until_ready()
            on_step(f"route {plan.events} events to {plan.receivers} paused receivers")
            still = await self._route(node, STILL)
            on_step("the same, to active receivers")
            live = await self._route(node, LIVE)
            on_step(
                f"publish for {NEIGHBOUR_TENANTS} tenants, alone and with an event for {plan.wide} receivers"
            )
            alone, meanwhile, wide_s = await self._meanwhile(node)
        finally:
            await node.stop()
        found = [await self._judge(tenant) for tenant in (STILL, LIVE)]
        on_step("publish the same copies without a node")
        return FanoutFigures(
            receivers=plan.receivers, copies=plan.events * plan.receivers, wide=plan.wide,
            copies_per_s=still.rate, copies_per_s_delivered=live.rate,
            server=await self._bare_server(), lanes=await self._bare_lanes(),
            cpu_us_per_copy=still.cpu_us, memory_mb=still.memory_mb, wide_ms=1000 * wide_s,
            neighbours_p50_ms=alone.p50_ms, neighbours_worst_ms=alone.worst_ms,
            neighbours_during_p50_ms=meanwhile.p50_ms, neighbours_during_worst_ms=meanwhile.worst_ms,
            lost=sum(each.lost for each in found), repeats=sum(each.repeats for each in found),
            disordered=sum(each.disordered for each in found),
        )  # fmt: skip

    # ---- setting up

    async def _configure(self) -> None:
        plan = self._plan
        receivers = [f"{tenant}.r{number}" for tenant in (STILL, LIVE) for number in range(plan.receivers)]
        receivers += [f"{WIDE}.r{number}" for number in range(plan.wide)]
        receivers += [f"{tenant}.r0" for tenant in self._neighbours]

        async def put(receiver: str) -> None:
            config = msgspec.json.encode({
                "url": f"{self._sink.url}{receiver}", "secrets": [SECRET],
                "paused": receiver.startswith((f"{STILL}.", f"{WIDE}.")),
            })  # fmt: skip
            stored(await self._js.publish(self._names.receiver(receiver), config))

        await run_all(put, receivers)

    async def _announce(self, tenant: str) -> int:
        """Publish an event to all of the tenant's receivers; returns its position."""
        subject = self._names.publish_event(tenant, BENCH_EVENT_TYPE)
        return stored(await self._js.publish(subject, body(self._plan.size)))

    async def _counter(self, tenant: str) -> str:
        """The name of a consumer that counts the copies which are stored for the tenant from now on."""
        deliveries, name = self._names.deliveries, f"bench-{tenant}-{time.monotonic_ns()}"
        start = (await self._js.existing_stream(deliveries)).last + 1
        await self._js.consumer_create(
            deliveries, consumer_for_claim(name, self._names.deliveries_to(f"{tenant}.*"), start)
        )
        return name

    async def _routed(self, node: LocalNode, counter: str, count: int) -> None:
        """Return when that many copies are stored."""
        moved_at, copies = time.monotonic(), -1
        while True:
            node.check()
            info, before = await self._js.consumer_info(self._names.deliveries, counter), copies
            copies = info.pending if info else before
            if copies >= count:
                return
            if copies > before:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > GIVE_UP_AFTER_S:
                raise click.ClickException(f"no copy was stored for {GIVE_UP_AFTER_S:g} s; see {node.log}")
            await asyncio.sleep(PROGRESS_POLL_S)

    # ---- measuring

    async def _route(self, node: LocalNode, tenant: str) -> Routed:
        """All events of the plan at once, until the last copy is stored; then until all have arrived."""
        count, used = self._plan.events * self._plan.receivers, usage(node.pid)
        await self._sink.forget()
        counter, began_at = await self._counter(tenant), time.monotonic()
        await asyncio.gather(*(self._announce(tenant) for _ in range(self._plan.events)))
        await self._routed(node, counter, count)
        took_s, now_used = time.monotonic() - began_at, usage(node.pid)
        if tenant == LIVE:
            await self._arrived(node, count)
        if used is None or now_used is None:
            return Routed(count / took_s, None, None)
        return Routed(count / took_s, (now_used.cpu_s - used.cpu_s) / count * 1e6, now_used.memory_mb)

    async def _arrived(self, node: LocalNode, count: int) -> None:
        while await self._sink.count() < count:
            node.check()
            await asyncio.sleep(PROGRESS_POLL_S)

    async def _meanwhile(self, node: LocalNode) -> tuple[Report, Report, float]:
        """Measures how late the neighbours' events come, alone and during the wide one."""
        plan = self._plan
        await self._neighbours_for(node, 1.0)  # This first run makes the connections and opens the actors.
        alone = await self._neighbours_for(node, plan.timed_s)
        steady = asyncio.ensure_future(self._neighbours_for(node, plan.timed_s))
        await asyncio.sleep(plan.timed_s / 10)
        counter, began_at = await self._counter(WIDE), time.monotonic()
        await self._announce(WIDE)
        await self._routed(node, counter, plan.receivers)
        took_s = time.monotonic() - began_at
        return alone, await steady, took_s

    async def _neighbours_for(self, node: LocalNode, time_s: float) -> Report:
        """Publish to the neighbours in turn for a time, and report how the events arrived."""
        await self._sink.forget()
        count, until = 0, time.monotonic() + time_s
        async with asyncio.TaskGroup() as publishing:
            while time.monotonic() < until:
                publishing.create_task(self._announce(self._neighbours[count % NEIGHBOUR_TENANTS]))
                count += 1
                await asyncio.sleep(NEIGHBOURS_EVERY_S)
        await self._arrived(node, count)
        return await self._sink.report()

    # ---- bare clients

    async def _bare_server(self) -> float:
        """Copies per second that the server takes from one pipeline."""
        wire, room = self._js.wire, asyncio.Semaphore(UNDER_WAY_MAX)

        def on_answer(message: Message) -> None:
            stored(publish_answer(message))
            room.release()

        inbox = wire.new_inbox()
        subscription = await wire.subscribe(inbox, on_answer)
        began_at = time.monotonic()
        for subject, copy, headers in self._copies():
            await room.acquire()
            await wire.publish(subject, copy, inbox, headers)
        for _ in range(UNDER_WAY_MAX):
            await room.acquire()
        took_s = time.monotonic() - began_at
        await subscription.unsubscribe()
        return self._plan.copies / took_s

    async def _bare_lanes(self) -> float:
        """Copies per second of a bare client with as many lanes as the router."""
        copies = self._copies()

        async def send() -> None:
            for subject, copy, headers in copies:
                stored(await self._js.publish(subject, copy, headers))

        began_at = time.monotonic()
        await asyncio.gather(*(send() for _ in range(SENDERS_MAX)))
        return self._plan.copies / (time.monotonic() - began_at)

    def _copies(self) -> Iterator[tuple[str, bytes, dict[str, str]]]:
        """Makes the copies of the plan as the router publishes them: subject, body, headers."""
        event = published_event(1, time.time(), f"{BARE}.{BENCH_EVENT_TYPE}", None, body(self._plan.size))
        for number in range(self._plan.copies):
            subject = self._names.publish_to(f"{BARE}.r{number % self._plan.receivers}")
            yield subject, event.body, copy_headers(event)

    # ---- results

    async def _judge(self, tenant: str) -> WrongCopies:
        """Count what breaks the rule: each receiver has each event once, in the order of the stream."""
        sources: defaultdict[str, list[int]] = defaultdict(list)
        async for message in self._stored(tenant):
            sources[message.subject].append(int(message.headers[EVENT_SOURCE]))
        each = [WrongCopies.of(found) for found in sources.values()]
        wanted = self._plan.events * self._plan.receivers
        return WrongCopies(
            lost=wanted - sum(len(set(found)) for found in sources.values()),
            repeats=sum(one.repeats for one in each), disordered=sum(one.disordered for one in each),
        )  # fmt: skip

    async def _stored(self, tenant: str) -> AsyncIterator[StoredMessage]:
        subject, at, pending = self._names.deliveries_to(f"{tenant}.*"), 0, 1
        while pending:
            page = await self._js.read(self._names.deliveries, subject, at + 1)
            for message in page.messages:
                yield message
                at = message.position
            pending = page.pending


def _neighbours(tenant: str, count: int, partitions: int) -> list[str]:
    """Tenants that do not share the partition of that one."""
    names = (f"neighbour{number}" for number in itertools.count())
    others = (each for each in names if partition_of(each, partitions) != partition_of(tenant, partitions))
    return list(itertools.islice(others, count))


async def measure(plan: FanoutPlan, on_step: Callable[[str], None]) -> FanoutFigures:
    """Run the bench."""
    async with harness(plan.shards) as on:
        return await FanoutBench(plan, on, on_step).run()
