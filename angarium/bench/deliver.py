"""`angarium bench deliver`: one node at full load, and at 500 events a second, beside bare loops.

A server, a node and a sink in processes of their own. The events are published before the node starts, so
that publishing takes no share of the two figures that matter: deliveries a second, and CPU a delivery.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from angarium.bench import loops
from angarium.bench.sink import Report
from angarium.local_node import LocalNode
from streams.answers import Stored
from streams.connection import ConnectOptions, connect
from streams.embedded import EmbeddedServer
from streams.jetstream import JetStream
from streams.setup import setup
from streams.topology import Names, Settings

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PUBLISHING_MAX = 1000
LOOK_S = 0.05
STALLED_S = 30.0
TICK_S = 0.01


class Plan(Struct, frozen=True, kw_only=True):
    """What is measured: receivers and events, bodies of `size` bytes, a steady `rate` for `steady_s`."""

    receivers: int = 200
    events: int = 60_000
    size: int = 1000
    rate: int = 500
    steady_s: float = 6.0
    loop_s: float = 4.0


class Figures(Struct, frozen=True, kw_only=True):
    """What came out. Rates are a second, all taken in one run."""

    receivers: int
    events: int
    deliveries: float
    aiohttp: float
    http1: float
    to_aiohttp: float
    to_http1: float
    appends_per_delivery: float
    cpu_us_per_delivery: float | None
    memory_mb: float | None
    p50_ms: float
    p99_ms: float
    disordered: int


class SinkProcess:
    """The sink, as its starter sees it."""

    def __init__(self, orders: asyncio.StreamWriter, answers: asyncio.StreamReader, port: int) -> None:
        self._orders = orders
        self._answers = answers
        self.url = f"http://127.0.0.1:{port}/"

    async def report(self) -> Report:
        """What has come since the count began."""
        return await self._ask(b"report\n")

    async def count(self) -> int:
        """How many have come since; cheaper than a report."""
        return (await self._ask(b"count\n")).requests

    async def forget(self) -> None:
        """Begin to count anew."""
        await self._ask(b"forget\n")

    async def _ask(self, order: bytes) -> Report:
        self._orders.write(order)
        return msgspec.json.decode(await self._answers.readline(), type=Report)


@asynccontextmanager
async def running_sink() -> AsyncIterator[SinkProcess]:
    """A sink that ends with us: its standard input does."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "angarium.bench.sink", stdin=pipe, stdout=pipe
    )
    orders, answers = process.stdin, process.stdout
    if orders is None or answers is None:
        raise RuntimeError("a process was started with pipes and has none")
    try:
        yield SinkProcess(orders, answers, int(await answers.readline()))
    finally:
        orders.close()
        await process.wait()


class Bench:
    """One run. `tell` hears what is being done."""

    def __init__(self, plan: Plan, directory: Path, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._directory = directory
        self._tell = tell
        self._names = Names()
        self._published = 0

    async def run(self) -> Figures:
        """Measure. Raises click.ClickException where something was lost, or missing."""
        plan = self._plan
        async with (
            running_sink() as sink,
            EmbeddedServer(self._directory / "nats", port=0) as server,
        ):
            wire = await connect(ConnectOptions(servers=(server.url,)))
            js = JetStream(wire)
            await js.start()
            await setup(js, Settings())
            await self._configure(js, sink.url)
            self._tell(f"publish {plan.events} events to {plan.receivers} receivers")
            await self._publish(js, plan.events)
            node = LocalNode(self._directory, {"nats": [server.url], "ttl_s": 5.0})
            try:
                self._tell("deliver them")
                await node.start()
                full = await self._arrived(sink, node, plan.events)
                used = _used(node.pid)
                appends = await self._appends(js)
                self._tell(f"publish and deliver {plan.rate} a second for {plan.steady_s:g} s")
                steady = await self._steady(js, sink, node)
            finally:
                await node.stop()
            self._tell("POST in bare loops")
            body = _body(plan.size)
            aiohttp = await loops.aiohttp_loop(sink.url, body, plan.receivers, plan.loop_s)
            http1 = await loops.http1_loop(sink.url, body, plan.receivers, plan.loop_s)
            await js.stop()
            await wire.close()
        rate = full.requests / (full.last_at - full.first_at)
        return Figures(
            receivers=plan.receivers, events=plan.events, deliveries=rate, aiohttp=aiohttp, http1=http1,
            to_aiohttp=rate / aiohttp, to_http1=rate / http1, appends_per_delivery=appends / plan.events,
            cpu_us_per_delivery=used[0] / plan.events * 1e6 if used else None,
            memory_mb=used[1] if used else None, p50_ms=steady.p50_ms, p99_ms=steady.p99_ms,
            disordered=full.disordered + steady.disordered,
        )  # fmt: skip

    async def _configure(self, js: JetStream, url: str) -> None:
        for number in range(self._plan.receivers):
            policy = msgspec.json.encode({"url": f"{url}{number}", "secrets": [SECRET]})
            await js.publish(self._names.receiver(f"bench.r{number}"), policy)

    async def _publish(self, js: JetStream, count: int) -> None:
        """Publish so many events, to one receiver after the other, as fast as the server takes them."""
        room = asyncio.Semaphore(PUBLISHING_MAX)

        async def publish(number: int) -> None:
            async with room:
                subject = self._names.publish_to(f"bench.r{number % self._plan.receivers}")
                headers = {"Nats-Msg-Id": f"bench-{number}", "Angarium-Type": "bench.delivery"}
                answer = await js.publish(subject, _body(self._plan.size), headers)
                if not isinstance(answer, Stored):
                    raise click.ClickException(f"an event was not accepted: {answer}")

        first = self._published
        self._published += count
        await asyncio.gather(*(publish(number) for number in range(first, first + count)))

    async def _arrived(self, sink: SinkProcess, node: LocalNode, count: int) -> Report:
        """Wait until so many have come, and say what they came to."""
        moved_at, before = time.monotonic(), 0
        while (come := await sink.count()) < count:
            node.check()
            if come > before:
                moved_at, before = time.monotonic(), come
            elif time.monotonic() - moved_at > STALLED_S:
                raise click.ClickException(f"only {before} of {count} events arrived; see {node.log}")
            await asyncio.sleep(LOOK_S)
        return await sink.report()

    async def _steady(self, js: JetStream, sink: SinkProcess, node: LocalNode) -> Report:
        """Publish at a steady rate."""
        plan, loop = self._plan, asyncio.get_running_loop()
        await sink.forget()
        began_at, sent = loop.time(), 0
        while (elapsed_s := loop.time() - began_at) < plan.steady_s:
            due = int(elapsed_s * plan.rate) - sent
            await self._publish(js, due)
            sent += due
            await asyncio.sleep(TICK_S)
        return await self._arrived(sink, node, sent)

    async def _appends(self, js: JetStream) -> int:
        """Flushes in the journal, without the claims of the shards."""
        info = await js.stream_info(self._names.journal)
        return info.last - Settings().shards if info else 0


def _body(size: int) -> bytes:
    """A body that begins with the time."""
    return f"{time.time():.6f}".encode().ljust(size, b" ")


def _used(pid: int | None) -> tuple[float, float] | None:
    """CPU seconds and megabytes of a process, where the system tells (Linux)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return (int(fields[11]) + int(fields[12])) / 100, pages * 4096 / 1e6


async def deliver(plan: Plan, tell: Callable[[str], None]) -> Figures:
    """Run the bench in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="angarium-bench-") as directory:
        return await Bench(plan, Path(directory), tell).run()
