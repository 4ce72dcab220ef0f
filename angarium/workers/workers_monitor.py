"""The monitor of all workers: one `/metrics` that sums theirs, `/readyz` when all are ready, and `/healthz`.

Every page asks the workers, and waits only so long for them. A worker that does not answer in time is left
out of the sums of what is measured now, and counted in `angarium_workers`.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec import Struct
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from angarium.http_server import Pending, Received, Reply
from angarium.monitor_server import broken, exposition, page_of, text
from angarium.telemetry.metrics.cached_pages import REUSE_FACTOR
from angarium.telemetry.metrics.table import BY_NAME
from angarium.workers.metric_sums import Families, Family, Samples, Sum, WorkerCounts, counted, join, read
from angarium.workers.worker import Worker

SUPERVISOR_METRICS = (
    "process_cpu_seconds", "process_resident_memory_bytes", "process_virtual_memory_bytes",
    "process_start_time_seconds",
)  # fmt: skip
"""Metrics of its own process that the supervisor adds: it takes CPU and memory, too."""


class WorkerAnswer(Struct, frozen=True):
    """The answer of a worker, and the number of the process that was asked: its next one counts from zero."""

    worker: Worker
    start_number: int
    reply: Reply | None


class WorkersMonitor:
    """Answers for all workers."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._counts = {each.name: WorkerCounts() for each in workers}
        self._own = CollectorRegistry()
        ProcessCollector(registry=self._own)
        self._pending: dict[str, asyncio.Task[Reply]] = {}
        self._scrape: Reply | None = None
        self._scrape_good_until = -math.inf

    def answer(self, received: Received) -> Reply | Pending:
        """The answer to one request."""
        pages = {"/healthz": self._health, "/readyz": self._readiness, "/metrics": self._metrics}
        return page_of(received, {path: partial(self._page, path, page) for path, page in pages.items()})

    def _page(self, path: str, page: Callable[[], Awaitable[Reply]]) -> Pending:
        """The page when it is known. All who ask meanwhile get the same one."""
        pending = self._pending.get(path)
        if pending is None:
            pending = self._pending[path] = asyncio.ensure_future(_unless_broken(path, page))
            pending.add_done_callback(lambda _: self._pending.pop(path))
        return pending

    async def _answers(self, path: str) -> list[WorkerAnswer]:
        return await asyncio.gather(*(_ask(worker, path) for worker in self._workers))

    async def _health(self) -> Reply:
        """Like a single node: unhealthy if one hangs. One that ended is started again, which helps more."""
        answers = await self._answers("/healthz")
        hanging = [each.worker.name for each in answers if each.reply is None and each.worker.has_answered]
        return text(503, f"no answer from {', '.join(hanging)}") if hanging else text(200, "ok")

    async def _readiness(self) -> Reply:
        wrong = [
            f"{each.worker.name}: {why}"
            for each in await self._answers("/readyz")
            if (why := _unready(each.worker, each.reply))
        ]
        return text(503, f"not ready: {'; '.join(wrong)}") if wrong else text(200, "ready")

    async def _metrics(self) -> Reply:
        """The sums, or those before: they are reused as long as a node reuses its page (`CachedPages`)."""
        if self._scrape is not None and time.monotonic() < self._scrape_good_until:
            return self._scrape
        answers = await self._answers("/metrics")
        began_at = time.monotonic()  # To wait for workers holds nothing up.
        self._scrape = exposition(generate_latest(Sum(self._sum(answers))))
        done_at = time.monotonic()
        self._scrape_good_until = done_at + REUSE_FACTOR * (done_at - began_at)
        return self._scrape

    def _sum(self, answers: Sequence[WorkerAnswer]) -> Families:
        total: Families = {}
        up = 0
        for each in answers:
            counts = self._counts[each.worker.name]
            if each.reply is not None and each.reply.status == 200:
                up += 1
                counts.take(each.start_number, read(each.reply.body))
                join(total, counts.latest)
            else:
                join(total, counted(counts.latest))
            join(total, counts.before)
        own = read(generate_latest(self._own))
        join(total, {name: each for name, each in own.items() if name in SUPERVISOR_METRICS})
        join(total, self._about_workers(up))
        return total

    def _about_workers(self, up: int) -> Families:
        name, again = "angarium_workers", "angarium_worker_restarts_total"
        states = {"configured": len(self._workers), "up": up}
        workers: Samples = {(name, (("state", state),)): count for state, count in states.items()}
        restarts = sum(max(0, worker.starts - 1) for worker in self._workers)
        return {
            name: Family("gauge", BY_NAME[name].help, workers),
            again.removesuffix("_total"): Family("counter", BY_NAME[again].help, {(again, ()): restarts}),
        }  # fmt: skip


async def _ask(worker: Worker, path: str) -> WorkerAnswer:
    start_number = worker.starts
    return WorkerAnswer(worker, start_number, await worker.ask(path))


async def _unless_broken(path: str, page: Callable[[], Awaitable[Reply]]) -> Reply:
    try:
        return await page()
    except Exception:
        return broken(path)


def _unready(worker: Worker, reply: Reply | None) -> str:
    """The reason why a worker is not ready; empty if it is."""
    if reply is not None:
        said = reply.body.decode().strip()
        return "" if reply.status == 200 else said.removeprefix("not ready: ")
    if not worker.is_running:
        return "its process has ended"
    return "it does not answer" if worker.has_answered else "starting"
