"""`angarium bench deliver`: one node at full load, and at 500 and 200 events a second, next to bare loops.

A server, a node and a sink each have a process of their own. For the most important figures, deliveries per
second and CPU per delivery, the events are published before the node starts, so that publishing takes no
share of the cores; the rate during constant publishing is a separate figure. On a shared machine, compare the
calls per delivery (`calls`): they are counted, so they hardly differ.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from angarium.bench.harness import SECRET, SHARDS, Bench, Harness, harness
from angarium.bench.measuring import loops
from angarium.bench.measuring.sampling import PYTHON, Samples, recorded
from angarium.bench.measuring.usage import Usage, cpu_us_each, usage
from angarium.bench.publishing import body, run_all, stored
from angarium.bench.sink import Report
from angarium.development.local_node import LocalNode
from streams.nats.wire_names import EVENT_TYPE, MESSAGE_ID

PROGRESS_POLL_S = 0.05
GIVE_UP_AFTER_S = 30.0
BENCH_EVENT_TYPE = "bench.delivery"
PUBLISH_TICK_S = 0.002


class DeliverPlan(Struct, frozen=True, kw_only=True):
    """A plan: number of `deliveries` and receivers, bodies of `size` bytes, a steady `rate` and a gentle one.

    With a `fan` above 1 events are published for a tenant, each for `fan` receivers, and routed. With a
    `batch` above 1 each POST has up to so many events, and the figures about deliveries count events. Every
    timed part (the steady one, the gentle one, each bare loop) takes `timed_s`. If `profile` is given, that
    file says where the node at full load spent its time.
    """

    receivers: int = 200
    deliveries: int = 60_000
    fan: int = 1
    batch: int = 1
    size: int = 1000
    shards: int = SHARDS
    rate: int = 500
    gentle_rate: int = 200
    timed_s: float = 5.0
    profile: Path | None = None


class DeliverFigures(Struct, frozen=True, kw_only=True):
    """Results of one run. Rates are per second; `cpu_us` is of one process, per delivery or request.

    All figures about deliveries that do not say otherwise are of full load, `memory_mb` and `parts_us`
    included; CPU and memory are the node's, `server_cpu_us_per_delivery` is nats-server's. `parts_us` is the
    CPU per delivery, by purpose (`measuring/sampling.py`). On a shared machine, the CPU says
    more than the rates. `gentle_cpu` and `gentle_server_cpu`, at the gentle rate, are shares of a core; each
    is None if the system does not show it.
    """

    receivers: int
    delivered: int
    fan: int
    deliveries: float
    aiohttp: float
    http1: float
    aiohttp_cpu_us: float
    http1_cpu_us: float
    to_aiohttp: float
    to_http1: float
    appends_per_delivery: float
    cpu_us_per_delivery: float | None
    server_cpu_us_per_delivery: float | None
    parts_us: dict[str, float]
    memory_mb: float | None
    deliveries_while_publishing: float
    p50_ms: float
    p99_ms: float
    gentle_cpu: float | None
    gentle_server_cpu: float | None
    gentle_p99_ms: float
    lost: int
    repeats: int
    disordered: int


class Workload(Struct, frozen=True):
    """Deliveries as the sink saw them, and the resources that the node used for them.

    The start of the node and its claims are left out: only the deliveries after the first `skipped`
    are timed, from `began_at` on.
    """

    report: Report
    lost: int
    skipped: int
    began_at: float
    cpu_us: float | None = None
    server_cpu_us: float | None = None
    memory_mb: float | None = None

    def parts_us(self, shares: dict[str, float]) -> dict[str, float]:
        """The CPU per delivery, by part; empty if the system does not show it."""
        return {} if self.cpu_us is None else {part: share * self.cpu_us for part, share in shares.items()}

    def share_of_a_core(self, cpu_us: float | None) -> float | None:
        """The part of a core that so much CPU per delivery takes."""
        return None if cpu_us is None else cpu_us * self.rate / 1e6

    @property
    def rate(self) -> float:
        """Deliveries a second, to the last of them."""
        return (self.report.deliveries - self.skipped) / max(self.report.last_at - self.began_at, 1e-6)


class DeliverBench(Bench[DeliverPlan]):
    """One run over one server and one sink. `on_step` is called with each step."""

    def __init__(self, plan: DeliverPlan, harness: Harness, on_step: Callable[[str], None]) -> None:
        super().__init__(plan, harness, on_step)
        self._published = 0

    async def run(self) -> DeliverFigures:
        """Measure everything. Raises click.ClickException if events were not accepted."""
        plan, on_step, url = self._plan, self._on_step, self._sink.url
        await self._configure()
        on_step(f"publish events for {plan.deliveries} deliveries to {plan.receivers} receivers")
        await self._publish(self._whole(plan.deliveries))
        # The bare loops run right before and after the node: a shared machine behaves differently a minute
        # later.
        on_step("POST in bare loops")
        sample = body(plan.size)
        http1 = await loops.http1_loop(url, sample, plan.receivers, plan.timed_s)
        aiohttp = await loops.aiohttp_loop(url, sample, plan.receivers, plan.timed_s)
        on_step("deliver the published events")
        full, samples = await self._full_load()
        on_step("POST in a bare loop once more")
        aiohttp = aiohttp.mean(await loops.aiohttp_loop(url, sample, plan.receivers, plan.timed_s))
        appends = await self._appends()
        live, steady, gentle = await self._while_publishing()
        reports = [load.report for load in (full, live, steady, gentle)]
        return DeliverFigures(
            receivers=plan.receivers, delivered=full.report.deliveries, fan=plan.fan,
            deliveries=full.rate, aiohttp=aiohttp.rate, http1=http1.rate,
            cpu_us_per_delivery=full.cpu_us, server_cpu_us_per_delivery=full.server_cpu_us,
            aiohttp_cpu_us=aiohttp.cpu_us, http1_cpu_us=http1.cpu_us,
            to_aiohttp=full.rate / aiohttp.rate, to_http1=full.rate / http1.rate,
            appends_per_delivery=appends / full.report.deliveries,
            parts_us=full.parts_us(samples.shares()), memory_mb=full.memory_mb,
            deliveries_while_publishing=live.rate, p50_ms=steady.report.p50_ms, p99_ms=steady.report.p99_ms,
            gentle_cpu=gentle.share_of_a_core(gentle.cpu_us),
            gentle_server_cpu=gentle.share_of_a_core(gentle.server_cpu_us),
            gentle_p99_ms=gentle.report.p99_ms,
            lost=full.lost + live.lost + steady.lost + gentle.lost,
            repeats=sum(report.repeats for report in reports),
            disordered=sum(report.disordered for report in reports),
        )  # fmt: skip

    async def _full_load(self) -> tuple[Workload, Samples]:
        """Run a node after everything is published, and see where its time goes."""
        record = self._harness.directory / "samples"
        node = self._harness.node(*PYTHON, str(record))
        try:
            await node.start()
            await node.until_ready()
            load = await self._arrived(node, self._whole(self._plan.deliveries))
        finally:
            await node.stop()
        samples = recorded(record)
        if self._plan.profile is not None:
            self._plan.profile.write_text(samples.text())
        return load, samples

    async def _while_publishing(self) -> tuple[Workload, Workload, Workload]:
        """Run a node during publishing: as fast as possible, then at the steady and the gentle rate."""
        plan, node = self._plan, self._harness.node()
        fast = self._whole(plan.deliveries // 2)
        try:
            await node.start()
            await node.until_ready()
            self._on_step(f"publish for {fast} more deliveries and deliver at the same time")
            live = await self._meanwhile(node, fast, self._publish(fast))
            steady = await self._steadily(node, plan.rate)
            return live, steady, await self._steadily(node, plan.gentle_rate)
        finally:
            await node.stop()

    async def _steadily(self, node: LocalNode, rate: int) -> Workload:
        """Publish at that rate, and see how the events are delivered."""
        count = self._whole(int(rate * self._plan.timed_s))
        self._on_step(f"publish and deliver {rate} a second for {self._plan.timed_s:g} s")
        return await self._meanwhile(node, count, self._publish_steadily(count, rate))

    async def _configure(self) -> None:
        policy: dict[str, object] = {"secrets": [SECRET]}
        if self._plan.fan > 1:
            policy["events"] = [">"]
        if self._plan.batch > 1:
            policy["batch"] = {"max_events": self._plan.batch}
        for number in range(self._plan.receivers):
            text = msgspec.json.encode({"url": f"{self._sink.url}{number}", **policy})
            receiver = f"{self._tenant(number)}.r{number}"
            stored(await self._js.publish(self._names.receiver(receiver), text))

    def _tenant(self, receiver: int) -> str:
        """The tenant of the receiver with that index: a tenant has as many receivers as get each event."""
        return f"bench{receiver // self._plan.fan}" if self._plan.fan > 1 else "bench"

    def _whole(self, deliveries: int) -> int:
        """The number of deliveries, or a few less, that whole events make."""
        return deliveries - deliveries % self._plan.fan

    def _subject(self, number: int) -> str:
        """The subject of the event with that index: receivers, or tenants, take turns."""
        plan, names = self._plan, self._names
        first = number * plan.fan % plan.receivers
        if plan.fan > 1:
            return names.publish_event(self._tenant(first), BENCH_EVENT_TYPE)
        return names.publish_to(f"{self._tenant(first)}.r{first}")

    async def _publish(self, deliveries: int) -> None:
        """Publish events for `deliveries` deliveries, as fast as the server takes them."""

        async def publish(number: int) -> None:
            headers = {MESSAGE_ID: f"bench-{number}", EVENT_TYPE: BENCH_EVENT_TYPE}
            stored(await self._js.publish(self._subject(number), body(self._plan.size), headers))

        first, count = self._published, deliveries // self._plan.fan
        self._published += count
        await run_all(publish, range(first, first + count))

    async def _publish_steadily(self, count: int, rate: int) -> None:
        """Publish events for `count` deliveries at `rate` a second."""
        loop, sent = asyncio.get_running_loop(), 0
        began_at = loop.time()
        while sent < count:
            due = self._whole(min(count, int((loop.time() - began_at) * rate)) - sent)
            await self._publish(due)
            sent += due
            await asyncio.sleep(PUBLISH_TICK_S)

    async def _meanwhile(self, node: LocalNode, count: int, publishing: Awaitable[None]) -> Workload:
        """Publish events and see how they are delivered."""
        await self._sink.forget()
        _, load = await asyncio.gather(publishing, self._arrived(node, count))
        return load

    async def _arrived(self, node: LocalNode, count: int) -> Workload:
        """Wait until `count` deliveries have come, or none for long, and return the result."""
        moved_at, count_now = time.monotonic(), 0
        began: tuple[int, float, Usage | None, Usage | None] | None = None
        server_pid = self._harness.server_pid
        while count_now < count and time.monotonic() - moved_at < GIVE_UP_AFTER_S:
            node.check()
            before, count_now = count_now, await self._sink.count()
            if count_now > before:
                moved_at = time.monotonic()
                began = began or (count_now, time.time(), usage(node.pid), usage(server_pid))
            await asyncio.sleep(PROGRESS_POLL_S)
        report, used, used_by_server = await self._sink.report(), usage(node.pid), usage(server_pid)
        lost = count - report.deliveries
        match began:
            case (skipped, at, start, server_start) if report.deliveries > skipped:
                timed = report.deliveries - skipped
                return Workload(
                    report,
                    lost,
                    skipped,
                    at,
                    cpu_us_each(start, used, timed),
                    cpu_us_each(server_start, used_by_server, timed),
                    None if used is None else used.memory_mb,
                )
            case _:
                return Workload(report, lost, 0, report.first_at)

    async def _appends(self) -> int:
        """Flushes in the journal, without the claims of the shards."""
        info = await self._js.stream_info(self._names.journal)
        return info.last - self._harness.shards if info else 0


async def measure(plan: DeliverPlan, on_step: Callable[[str], None]) -> DeliverFigures:
    """Run the bench."""
    loops.check()
    async with harness(plan.shards) as on:
        return await DeliverBench(plan, on, on_step).run()
