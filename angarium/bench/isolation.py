"""`angarium bench isolation`: what some receivers cost the others.

200 healthy receivers of 20 tenants get 300 events a second, routed and delivered, alone and with each
trouble in turn. Each time server, node and sink are new processes, so that memory and latencies are that
trouble's own.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from statistics import median
from urllib.parse import urljoin

import msgspec
from msgspec import Struct

from angarium.bench.harness import SECRET, SHARDS, Bench, Harness, harness
from angarium.bench.measuring.usage import usage
from angarium.bench.publishing import body, run_all, stored
from angarium.bench.sink import UNCOUNTED_PATH, Report
from angarium.development.local_node import LocalNode
from streams.installation.partitions import partition_of, shard_of
from streams.installation.topology import Names
from streams.nats.answers import ConsumerInfo

NOWHERE = "http://127.0.0.1:1/"
"""An address where nothing listens: connections are refused."""

TENANT_COUNT = 20
FLOODED_RECEIVERS = 100
SLOW_ANSWER_S = 5
HANGING_ANSWER_S = 3600
PUBLISH_TICK_S = 0.002
PROGRESS_POLL_S = 0.05
GIVE_UP_AFTER_S = 120.0  # A flood of 200,000 events on their partition is before them.


class IsolationPlan(Struct, frozen=True, kw_only=True):
    """A plan: `receivers` healthy ones at `rate` events a second, `runs` times for `timed_s`.

    Meanwhile `behind` events wait for a dead receiver, `slow` receivers answer after 5 s, `hanging` ones of
    one shard never, and a tenant floods `flood` events.
    """

    receivers: int = 200
    rate: int = 300
    behind: int = 200_000
    slow: int = 50
    hanging: int = 2000
    flood: int = 200_000
    size: int = 1000
    shards: int = SHARDS
    runs: int = 3
    timed_s: float = 5.0


class Row(Struct, frozen=True, kw_only=True):
    """The healthy receivers with one kind of trouble: medians of all runs, from publishing to arrival.

    `unacked` are messages that the server had handed out and that were not acked yet, at the end.
    """

    neighbours: str
    p50_ms: float
    p99_ms: float
    worst_ms: float
    memory_mb: float | None
    unacked: int
    lost: int
    repeats: int
    disordered: int


class Trouble(Struct, frozen=True):
    """Receivers by id, each with its URL, or its path at the sink; `count` events on these subjects in turn.

    `goes_on`: the healthy ones are measured while these events are being handled, otherwise afterwards.
    `near`: the healthy tenants share the partition of the tenant that is called `flood`. Then only the
    events that they publish in the first second are measured; those wait for all events of the flood.
    `sudden`: the events come while the healthy ones, whose connections are open, are measured for a second.
    """

    name: str
    urls: dict[str, str]
    subjects: list[str]
    count: int
    goes_on: bool = False
    near: bool = False
    sudden: bool = False


def troubles(plan: IsolationPlan, names: Names, shards: int) -> list[Trouble]:
    """All kinds of trouble; the first is none."""
    home = shard_of("healthy0", "r0", shards)
    names_there = (name for n in itertools.count() if shard_of("hanging", name := f"r{n}", shards) == home)
    crowd = itertools.islice(names_there, plan.hanging)
    dead = {"dead.r0": NOWHERE}
    slow = {f"slow.r{n}": f"{UNCOUNTED_PATH}{SLOW_ANSWER_S}/" for n in range(plan.slow)}
    hanging = {f"hanging.{name}": f"{UNCOUNTED_PATH}{HANGING_ANSWER_S}/" for name in crowd}
    flooded = {f"flood.r{n}": f"{UNCOUNTED_PATH}0/" for n in range(FLOODED_RECEIVERS)}
    flood = [names.publish_event("flood", f"bench.r{n}") for n in range(FLOODED_RECEIVERS)]
    a_while = int(plan.runs * plan.timed_s / SLOW_ANSWER_S) + 3

    def direct(urls: dict[str, str]) -> list[str]:
        return [names.publish_to(receiver) for receiver in urls]

    return [
        Trouble("no other receivers", {}, [], 0),
        Trouble(f"a dead receiver with {plan.behind:,} waiting", dead, direct(dead), plan.behind),
        Trouble(
            f"{plan.slow} that answer after {SLOW_ANSWER_S} s",
            slow, direct(slow), plan.slow * a_while, goes_on=True,
        ),
        Trouble(
            f"{plan.hanging:,} of one shard that hang", hanging, direct(hanging), 3 * plan.hanging,
            goes_on=True,
        ),
        Trouble("the same, as they begin", hanging, direct(hanging), plan.hanging, goes_on=True, sudden=True),
        Trouble(f"a flood of {plan.flood:,} events", flooded, flood, plan.flood, goes_on=True),
        Trouble("the same, on its partition", flooded, flood, plan.flood, goes_on=True, near=True),
    ]  # fmt: skip


class IsolationBench(Bench[IsolationPlan]):
    """The healthy receivers with one kind of trouble."""

    def __init__(self, plan: IsolationPlan, trouble: Trouble, harness: Harness) -> None:
        super().__init__(plan, harness)
        self._trouble = trouble
        tenants = _tenants(trouble.near, self._shards)
        self._receivers = [
            (tenants[number % TENANT_COUNT], f"r{number // TENANT_COUNT}") for number in range(plan.receivers)
        ]
        self._published = 0

    async def run(self) -> Row:
        """Measure. Raises click.ClickException if events were not accepted."""
        plan = self._plan
        await self._configure()
        if not self._trouble.sudden:
            await self._make_trouble()
        node = self._harness.node()
        try:
            await node.start()
            await node.until_ready()
            if not self._trouble.goes_on:
                await self._handed_out(node)
            first = await self._healthy_for(node, 1.0)  # It makes the connections and opens the actors.
            if self._trouble.sudden:
                first, _ = await asyncio.gather(self._healthy_for(node, 1.0), self._make_trouble())
            runs = 0 if self._trouble.near or self._trouble.sudden else plan.runs
            reports = [await self._healthy_for(node, plan.timed_s) for _ in range(runs)] or [first]
            used, unacked = usage(node.pid), await self._sum(lambda info: info.unacked)
        finally:
            await node.stop()
        return Row(
            neighbours=self._trouble.name,
            p50_ms=median(report.p50_ms for report, _ in reports),
            p99_ms=median(report.p99_ms for report, _ in reports),
            worst_ms=median(report.worst_ms for report, _ in reports),
            memory_mb=used.memory_mb if used else None,
            unacked=unacked,
            lost=sum(lost for _, lost in reports),
            repeats=sum(report.repeats for report, _ in reports),
            disordered=sum(report.disordered for report, _ in reports),
        )

    async def _configure(self) -> None:
        healthy = [
            (f"{tenant}.{name}", f"{self._sink.url}{tenant}/{name}", name) for tenant, name in self._receivers
        ]
        troubled = [
            (receiver, urljoin(self._sink.url, url), receiver.partition(".")[2])
            for receiver, url in self._trouble.urls.items()
        ]

        async def put(each: tuple[str, str, str]) -> None:
            receiver, url, name = each
            config = msgspec.json.encode({"url": url, "secrets": [SECRET], "events": [f"bench.{name}"]})
            stored(await self._js.publish(self._names.receiver(receiver), config))

        await run_all(put, healthy + troubled)

    async def _make_trouble(self) -> None:
        subjects = self._trouble.subjects

        async def publish(number: int) -> None:
            stored(await self._js.publish(subjects[number % len(subjects)], body(self._plan.size)))

        await run_all(publish, range(self._trouble.count))

    async def _handed_out(self, node: LocalNode) -> None:
        """Return when the server has handed out everything, and almost everything is acked."""
        while await self._sum(lambda info: info.pending + info.unacked) > 1:
            node.check()
            await asyncio.sleep(PROGRESS_POLL_S)

    async def _sum(self, figure: Callable[[ConsumerInfo], int]) -> int:
        """Adds a figure up over all consumers."""
        streams = (self._names.deliveries, self._names.events)
        return sum([figure(each) for stream in streams for each in await self._js.consumers(stream)])

    async def _healthy_for(self, node: LocalNode, time_s: float) -> tuple[Report, int]:
        """Publish for the healthy ones for a time; return how the events arrived, and how many did not."""
        await self._sink.forget()
        count, began_at = 0, time.monotonic()
        async with asyncio.TaskGroup() as publishing:
            while (elapsed_s := time.monotonic() - began_at) < time_s:
                while count < elapsed_s * self._plan.rate:
                    publishing.create_task(self._publish())
                    count += 1
                await asyncio.sleep(PUBLISH_TICK_S)
        moved_at, count_now = time.monotonic(), 0
        while count_now < count and time.monotonic() - moved_at < GIVE_UP_AFTER_S:
            node.check()
            before, count_now = count_now, await self._sink.count()
            if count_now > before:
                moved_at = time.monotonic()
            await asyncio.sleep(PROGRESS_POLL_S)
        return await self._sink.report(), count - count_now

    async def _publish(self) -> None:
        tenant, name = self._receivers[self._published % len(self._receivers)]
        self._published += 1
        subject = self._names.publish_event(tenant, f"bench.{name}")
        stored(await self._js.publish(subject, body(self._plan.size)))


def _tenants(near: bool, partitions: int) -> list[str]:
    """The healthy tenants: all on the partition of `flood`, or none."""
    flooded = partition_of("flood", partitions)
    found: Iterator[str] = (f"healthy{number}" for number in itertools.count())
    chosen = (name for name in found if (partition_of(name, partitions) == flooded) is near)
    return list(itertools.islice(chosen, TENANT_COUNT))


async def measure(plan: IsolationPlan, on_step: Callable[[str], None]) -> list[Row]:
    """Run the bench, each time on a harness of its own."""
    rows = []
    for trouble in troubles(plan, Names(), plan.shards):
        on_step(f"with {trouble.name}")
        async with harness(plan.shards) as on:
            rows.append(await IsolationBench(plan, trouble, on).run())
    return rows
