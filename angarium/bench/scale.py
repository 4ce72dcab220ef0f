"""`angarium bench scale`: the cost of very many receivers, most of them idle; of a crash; of a backlog.

The server, the node and the sink run in processes of their own. First there is a crowd of configured
receivers: how soon is a node ready, how much memory does it need with a few of them active, what does it do
while nothing happens, and how late is the first event for an actor that is not in memory? Then, on fresh
servers, a node with parked actors is killed: how soon does another one deliver? A node at full load is
killed: how many events are repeated? A receiver recovers that is far behind: how fast does it get its
backlog, in either order, and how much memory does that need? And one, two and four nodes share the shards:
how many deliveries does a second of their CPU make?
"""

import asyncio
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from angarium import package_check
from angarium.bench.harness import SECRET, SHARDS, Bench, harness
from angarium.bench.measuring.usage import Usage, usage
from angarium.bench.publishing import body, run_all, stored
from angarium.bench.sink import Report
from angarium.settings import Settings

BODY_BYTES = 1000
EVENT_EVERY_S = 0.002
PROGRESS_POLL_S = 0.05
GIVE_UP_AFTER_S = 60.0
QUIET_PAUSE_S = 2.0
LOADED_RECEIVERS = 200
"""Receivers of the node that is killed at full load."""
IN_FLIGHT_MAX = 64
"""Attempts that the receiver that is behind has in flight in relaxed order."""
NODES = (1, 2, 4)
"""Numbers of nodes that share the shards."""
PROBED_RECEIVERS = 64
"""Receivers that get events while a killed node restarts: any of them may be served first."""


class ScalePlan(Struct, frozen=True, kw_only=True):
    """A plan: how many receivers there are, and how many of them get events, wait or are behind.

    `receivers` are configured, `active` of them get events; `parked` wait when the node is killed; another
    node is killed when it has delivered half of `loaded` events; `behind` events wait for one receiver, and
    are then published once more for many that some nodes share. The idle node is watched for `timed_s`.
    """

    receivers: int = 100_000
    active: int = 1000
    parked: int = 5000
    loaded: int = 20_000
    behind: int = 200_000
    shards: int = SHARDS
    timed_s: float = 10.0


class ScaleFigures(Struct, frozen=True, kw_only=True):
    """Results.

    `ready_s`: from the start of a node's process until it runs all shards, the crowd configured. `idle` is a
    share of one core. `fresh_…`: from publish to arrival, of the first event after a start, for which the
    actor is brought into memory; `resident_…` of the second. `first_s` and `all_s`: from the kill of a node
    whose heartbeat was awaited for `ttl_s` until the first delivery, and until all shards run again.
    `repeated`: the events that came twice after the kill at full load. `drain` is deliveries a second to the
    one that was behind, in strict order, `drain_relaxed` in relaxed order; `drain_…_mb` is the node's memory
    before, and the most that was seen of it meanwhile. `per_cpu_s` is deliveries per second of CPU, by the
    number of nodes: all of them together.
    """

    receivers: int
    active: int
    parked: int
    ttl_s: float
    ready_s: float
    memory_mb: float | None
    actor_bytes: float
    idle: float | None
    fresh_p50_ms: float
    fresh_p99_ms: float
    resident_p50_ms: float
    resident_p99_ms: float
    first_s: float
    all_s: float
    loaded: int
    repeated: int
    behind: int
    drain: float
    drain_relaxed: float
    drain_before_mb: float | None
    drain_max_mb: float | None
    per_cpu_s: dict[int, float]
    lost: int
    repeats: int
    disordered: int


class ManyReceivers(Struct, frozen=True, kw_only=True):
    """Times and memory of a node with very many receivers, of which some get events."""

    ready_s: float
    memory_mb: float | None
    idle: float | None
    fresh: Report
    resident: Report


class AfterKill(Struct, frozen=True, kw_only=True):
    """Times from the kill of a node until it delivers again, and until it runs all shards."""

    first_s: float
    all_s: float
    report: Report
    published: int


class BacklogRun(Struct, frozen=True, kw_only=True):
    """Deliveries of a long backlog to one receiver, and the memory of the node before and meanwhile."""

    report: Report
    before: Usage | None
    memory_max_mb: float | None

    @property
    def rate(self) -> float:
        """Deliveries a second, from the first to the last."""
        return self.report.deliveries / max(self.report.last_at - self.report.first_at, 1e-6)


class SharedLoad(Struct, frozen=True):
    """Deliveries of nodes that share the shards; `cpu_s` of all of them, 0 if the system does not show it."""

    report: Report
    cpu_s: float


class ScaleBench(Bench[ScalePlan]):
    """One run. `on_step` is called with each step."""

    async def crowd(self) -> ManyReceivers:
        """Measure a node with many receivers. Raises click.ClickException if events were not accepted."""
        plan, on, on_step = self._plan, self._harness, self._on_step
        on_step(f"configure {plan.receivers} receivers")
        await self._configure(range(plan.receivers))
        active = range(0, plan.receivers, max(1, plan.receivers // plan.active))[: plan.active]
        on_step(f"start a node, and send each of {len(active)} receivers an event")
        node = on.node()
        try:
            await node.start()
            await node.until_ready()
            await self._publish_to(active)
        finally:
            await node.stop()
        on_step("start it again")
        started_at = time.monotonic()
        node = on.node()
        try:
            await node.start()
            await node.until_ready()
            ready_s = time.monotonic() - started_at
            on_step("send an event to each receiver not in memory, then to each in memory")
            fresh = await self._publish_to(active)
            resident = await self._publish_to(active)
            on_step(f"watch it idle for {plan.timed_s:g} s")
            idle, memory_mb = await self._idle(lambda: usage(node.pid))
        finally:
            await node.stop()
        return ManyReceivers(ready_s=ready_s, memory_mb=memory_mb, idle=idle, fresh=fresh, resident=resident)

    async def after_a_kill(self) -> AfterKill:
        """Kill a node with parked actors and start it again. Raises as `crowd`."""
        plan, on, on_step = self._plan, self._harness, self._on_step
        on_step(f"park {plan.parked} actors")
        await self._configure(range(plan.parked), rate={"limit": 1, "per": "hour", "burst": 1})
        await self._configure(range(plan.parked, plan.parked + PROBED_RECEIVERS))
        node = on.node()
        try:
            await node.start()
            await node.until_ready()
            await self._publish_to(range(plan.parked))
            await self._publish(range(plan.parked))
            await self._until_quiet()
            on_step("kill the node, and start it again")
            await self._sink.forget()
            await node.kill()
            killed_at, killed = time.time(), time.monotonic()
            await node.start()
            ready = asyncio.ensure_future(node.until_ready())
            published = 0
            while not ready.done():
                await self._publish([plan.parked + published % PROBED_RECEIVERS])
                published += 1
                await asyncio.sleep(PROGRESS_POLL_S)
            await ready
            all_s = time.monotonic() - killed
            report = await self._arrived(published)
        finally:
            await node.stop()
        first_s = report.first_at - killed_at
        return AfterKill(first_s=first_s, all_s=all_s, report=report, published=published)

    async def at_full_load(self) -> Report:
        """Kill a node that catches up with many receivers, and start it again. Raises as `crowd`."""
        plan, node = self._plan, self._harness.node()
        self._on_step(f"kill a node at full load, half-way through {plan.loaded} events, and start it again")
        await self._configure(range(LOADED_RECEIVERS))
        await self._publish([number % LOADED_RECEIVERS for number in range(plan.loaded)])
        try:
            await node.start()
            await node.until_ready()
            while await self._sink.count() < plan.loaded // 2:  # noqa: ASYNC110  # It is another process.
                await asyncio.sleep(PROGRESS_POLL_S)
            await node.kill()
            await node.start()
            return await self._arrived(plan.loaded)
        finally:
            await node.stop()

    async def drain(self, **policy: object) -> BacklogRun:
        """Let a receiver recover for which many events wait. Raises as `crowd`."""
        plan, on = self._plan, self._harness
        self._on_step(f"publish {plan.behind} events to a paused receiver")
        await self._configure([0], paused=True, **policy)
        await self._publish([0] * plan.behind)
        node = on.node()
        try:
            await node.start()
            await node.until_ready()
            await self._until_quiet()
            self._on_step("resume it")
            before, seen = usage(node.pid), list[float]()
            await self._sink.forget()
            await self._configure([0], **policy)
            report = await self._arrived(plan.behind, lambda: seen.append(_memory_mb(usage(node.pid))))
        finally:
            await node.stop()
        return BacklogRun(report=report, before=before, memory_max_mb=max(seen) if before else None)

    async def shared(self, count: int) -> SharedLoad:
        """Measure nodes that share the shards, and so the work for many receivers. Raises as `crowd`."""
        plan, on = self._plan, self._harness
        nodes = [on.node(name=f"node-{number}") for number in range(count)]
        self._on_step(f"share {plan.behind} events out among {count} nodes")
        await self._configure(range(LOADED_RECEIVERS))
        try:
            for node in nodes:
                await node.start()
            for node in nodes:
                await node.until_ready()
            await self._until_quiet()
            before = [usage(node.pid) for node in nodes]
            await self._publish([number % LOADED_RECEIVERS for number in range(plan.behind)])
            report = await self._arrived(plan.behind)
            used = zip(before, [usage(node.pid) for node in nodes], strict=True)
        finally:
            await asyncio.gather(*(node.stop() for node in nodes))
        return SharedLoad(report, sum(end.cpu_s - start.cpu_s for start, end in used if start and end))

    async def _configure(self, numbers: Sequence[int], **policy: object) -> None:
        async def put(number: int) -> None:
            text = {"url": f"{self._sink.url}{number}", "secrets": [SECRET], **policy}
            subject = self._names.receiver(_receiver(number))
            stored(await self._js.publish(subject, msgspec.json.encode(text)))

        await run_all(put, numbers)

    async def _publish(self, numbers: Sequence[int]) -> None:
        """Publish an event to each, as fast as the server takes them."""

        async def publish(number: int) -> None:
            stored(await self._js.publish(self._names.publish_to(_receiver(number)), body(BODY_BYTES)))

        await run_all(publish, numbers)

    async def _publish_to(self, numbers: range) -> Report:
        """Publish an event to each, at 500 a second, and return how they arrived."""
        await self._sink.forget()
        for number in numbers:
            await self._publish([number])
            await asyncio.sleep(EVENT_EVERY_S)
        return await self._arrived(len(numbers))

    async def _arrived(self, count: int, on_poll: Callable[[], None] = lambda: None) -> Report:
        """Wait until `count` deliveries have come, or none for long; `on_poll` is called at each poll."""
        moved_at, count_now = time.monotonic(), 0
        while count_now < count and time.monotonic() - moved_at < GIVE_UP_AFTER_S:
            before, count_now = count_now, await self._sink.count()
            if count_now > before:
                moved_at = time.monotonic()
            on_poll()
            await asyncio.sleep(PROGRESS_POLL_S)
        return await self._sink.report()

    async def _until_quiet(self) -> None:
        """Wait until nothing was recorded or acked for a while: all that have to wait are parked."""
        js, names = self._js, self._names
        before: list[int] = []
        while True:
            journal = await js.stream_info(names.journal)
            consumers = await js.consumers(names.deliveries)
            now = [journal.last if journal else 0, *sorted(each.ack_floor for each in consumers)]
            if now == before:
                return
            before = now
            await asyncio.sleep(QUIET_PAUSE_S)

    async def _idle(self, used: Callable[[], Usage | None]) -> tuple[float | None, float | None]:
        """The share of a core that an idle node takes, and its memory."""
        await self._until_quiet()
        before, began_at = used(), time.monotonic()
        await asyncio.sleep(self._plan.timed_s)
        after = used()
        if before is None or after is None:
            return None, None
        return (after.cpu_s - before.cpu_s) / (time.monotonic() - began_at), after.memory_mb


def _memory_mb(used: Usage | None) -> float:
    return used.memory_mb if used else 0.0


def _receiver(number: int) -> str:
    return f"bench{number % 100}.r{number}"


async def _actor_bytes(count: int) -> float:
    process = await asyncio.create_subprocess_exec(
        *package_check.python(), "-m", "angarium.bench.resident", str(count), stdout=PIPE
    )
    output, _ = await process.communicate()
    return float(output)


async def measure(plan: ScalePlan, on_step: Callable[[str], None]) -> ScaleFigures:
    """Run the bench."""
    async with harness(plan.shards) as on:
        crowd = await ScaleBench(plan, on, on_step).crowd()
    async with harness(plan.shards) as on:
        after = await ScaleBench(plan, on, on_step).after_a_kill()
    async with harness(plan.shards) as on:
        loaded = await ScaleBench(plan, on, on_step).at_full_load()
    async with harness(plan.shards) as on:
        drain = await ScaleBench(plan, on, on_step).drain()
    async with harness(plan.shards) as on:
        relaxed = await ScaleBench(plan, on, on_step).drain(order="relaxed", concurrency=IN_FLIGHT_MAX)
    shared: dict[int, SharedLoad] = {}
    for count in NODES:
        async with harness(plan.shards) as on:
            shared[count] = await ScaleBench(plan, on, on_step).shared(count)
    on_step(f"bring {plan.receivers} actors into memory")
    reports = (
        crowd.fresh, crowd.resident, after.report, loaded, drain.report, relaxed.report,
        *(each.report for each in shared.values()),
    )  # fmt: skip
    awaited = (
        plan.active, plan.active, after.published, plan.loaded, plan.behind, plan.behind,
        *[plan.behind] * len(shared),
    )  # fmt: skip
    return ScaleFigures(
        receivers=plan.receivers, active=plan.active, parked=plan.parked, ttl_s=Settings().ttl_s,
        ready_s=crowd.ready_s, memory_mb=crowd.memory_mb, idle=crowd.idle,
        actor_bytes=await _actor_bytes(plan.receivers),
        fresh_p50_ms=crowd.fresh.p50_ms, fresh_p99_ms=crowd.fresh.p99_ms,
        resident_p50_ms=crowd.resident.p50_ms, resident_p99_ms=crowd.resident.p99_ms,
        first_s=after.first_s, all_s=after.all_s,
        loaded=plan.loaded, repeated=loaded.repeats,
        behind=plan.behind, drain=drain.rate, drain_relaxed=relaxed.rate, drain_max_mb=drain.memory_max_mb,
        drain_before_mb=drain.before.memory_mb if drain.before else None,
        per_cpu_s={
            count: each.report.deliveries / each.cpu_s for count, each in shared.items() if each.cpu_s
        },
        lost=sum(awaited) - sum(report.deliveries for report in reports),
        repeats=sum(report.repeats for report in reports if report is not loaded),
        # In relaxed order, events may come in any order.
        disordered=sum(report.disordered for report in reports if report is not relaxed.report),
    )  # fmt: skip
