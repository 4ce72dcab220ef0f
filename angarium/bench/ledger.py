"""Measures a ledger: catching up with a journal, keeping up with a live one, and each query.

The journal is written in rounds, each of which the ledger reads before the next one: so it needs no more room
than a round. Facts are like those of real nodes: of every hundred attempts three fail and are made again.
"""

import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from actors.machine import facts as f
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.numbering import Numbered
from angarium.access import installation, open_jetstream
from angarium.bench.harness import SHARDS
from angarium.bench.measuring.usage import usage
from angarium.bench.publishing import run_all, stored
from angarium.ledger.ledger_answers import AttemptFilter
from angarium.ledger.open import open_for_queries, open_for_writing
from angarium.ledger.queries import LedgerQueries
from angarium.ledger.writer import Writer
from angarium.settings import Settings
from streams.installation.partitions import shard_of
from streams.installation.setup import setup
from streams.installation.topology import Names
from streams.journal.envelope import encode_fact, encode_flush
from streams.journal.routing_progress import NOTHING_ROUTED
from streams.nats.jetstream import JetStream
from streams.server.embedded import EmbeddedServer

KEPT_FOR_S = 400 * 86_400.0
ROUND_FACTS = 400_000
FLUSH_FACTS = 128
FACTS_A_SECOND = 5000
"""Facts of a second of the journal, and of a second of the live part."""
FAILED_PART = 0.03
LIVE_FLUSHES_EVERY_S = 0.1
ASKED_TIMES = 3
TYPES = ("order.created", "order.paid", "order.shipped", "order.cancelled", "customer.changed")
RARE_TYPE = "order.audited"
RARE_EVERY = 1_000_000
TENANT = "bench"


class LedgerPlan(Struct, frozen=True, kw_only=True):
    """Attempts in the journal, the receivers that they go to, and where the ledger is; None: a new file."""

    attempts: int = 300_000
    receivers: int = 1000
    live_s: float = 5.0
    location: str | None = None


class LedgerFigures(Struct, kw_only=True):
    """The figures; CPU and memory are those of this process. `behind_s`: at worst, live."""

    facts: int = 0
    facts_per_s: float = 0.0
    cpu_us_per_fact: float | None = None
    memory_mb: float | None = None
    live_facts_per_s: float = 0.0
    live_cpu: float = 0.0
    behind_s: float = 0.0
    bytes_per_fact: float | None = None
    queries_ms: dict[str, float] = field(default_factory=dict)


class _Journal:
    """Writes facts as the nodes would."""

    def __init__(self, plan: LedgerPlan, js: JetStream, names: Names) -> None:
        self._js = js
        self._names = names
        self._random = random.Random(1)
        self._receivers = [f"{TENANT}.r{number}" for number in range(plan.receivers)]
        self._shards = [shard_of(TENANT, each.partition(".")[2], SHARDS) for each in self._receivers]
        self._receivers_by_shard = [
            [number for number, shard in enumerate(self._shards) if shard == wanted]
            for wanted in range(SHARDS)
        ]
        self._sequences = [0] * plan.receivers
        self._position = 0
        self._opened = False
        self.facts = self.last = 0
        self.at = time.time() - plan.attempts / FACTS_A_SECOND - 60

    async def write(self, count: int) -> None:
        """Append `count` facts, in flushes, shard after shard."""
        if not self._opened:
            self._opened = True
            await run_all(self._open, range(len(self._receivers)))
        shards = [shard for shard in range(SHARDS) if self._receivers_by_shard[shard]]
        flushes = [shards[number % len(shards)] for number in range(max(1, count // FLUSH_FACTS))]
        for start in range(0, len(flushes), 64):
            await asyncio.gather(*(self._flush(shard) for shard in flushes[start : start + 64]))

    async def _open(self, number: int) -> None:
        name = self._receivers[number]
        bucket = Bucket(20.0, self.at, 1)
        limit = f.RateSet(receiver=name, limit=RateLimit(1000.0, 100), bucket=bucket)
        await self._append(self._shards[number], [f.Opened(receiver=name, at=self.at, position=0), limit])

    async def _flush(self, shard: int) -> None:
        facts: list[f.AnyFact] = []
        while len(facts) < FLUSH_FACTS:
            number = self._random.choice(self._receivers_by_shard[shard])
            self._sequences[number] += 1
            self._position += 1
            self.at += 1 / FACTS_A_SECOND
            facts += self._attempts(number)
        await self._append(shard, facts)

    def _attempts(self, number: int) -> list[f.AnyFact]:
        kind = RARE_TYPE if self._position % RARE_EVERY == 500 else TYPES[self._position % len(TYPES)]
        event = Numbered(
            sequence=self._sequences[number], position=self._position, id=f"event-{self._position:012}",
            stored_at=self.at - 0.05, source=self._position, type=kind,
        )  # fmt: skip
        shared: dict[str, Any] = {"receiver": self._receivers[number], "events": (event,)}
        bucket, latency_ms = Bucket(87.25, self.at, 1), 5 + 40 * self._random.random()
        if self._random.random() >= FAILED_PART:
            return [f.Delivered(
                **shared, at=self.at, attempt=1, status=200, latency_ms=latency_ms, bucket=bucket
            )]  # fmt: skip
        return [
            f.AttemptFailed(
                **shared, at=self.at, attempt=1, status=503, latency_ms=latency_ms, bucket=bucket,
                error="HTTP 503", next_at=self.at + 1, answer="upstream is restarting, try again",
            ),
            f.Delivered(
                **shared, at=self.at + 1, attempt=2, status=200, latency_ms=latency_ms, bucket=bucket
            ),
        ]  # fmt: skip

    async def _append(self, shard: int, facts: list[f.AnyFact]) -> None:
        self.facts += len(facts)
        data = encode_flush(
            node="bench", epoch=1, flush=1, floor=self._position, routing=NOTHING_ROUTED,
            at=self.at, unclean=None, facts=list(map(encode_fact, facts)),
        )  # fmt: skip
        self.last = stored(await self._js.publish(self._names.journal_of(shard), data))


async def measure(plan: LedgerPlan, on_step: Callable[[str], None] = lambda _: None) -> LedgerFigures:
    """Measure by the plan."""
    figures = LedgerFigures()
    async with _installation() as (js, names, directory):
        location = plan.location or f"sqlite:///{directory / 'ledger.db'}"
        journal = _Journal(plan, js, names)
        async with open_for_writing(location, KEPT_FOR_S) as store:
            await _catch_up(
                plan, journal, Writer(js, names, store, keep_s=KEPT_FOR_S), figures, js, names, on_step
            )
            on_step(f"live, {FACTS_A_SECOND} facts a second")
            await _live(plan, journal, Writer(js, names, store, keep_s=KEPT_FOR_S), location, figures, names)
        if (path := directory / "ledger.db").exists():
            size = sum(each.stat().st_size for each in directory.glob(f"{path.name}*"))
            figures.bytes_per_fact = size / journal.facts
        on_step("queries")
        async with open_for_queries(location) as queries:
            figures.queries_ms = await _query_times_ms(queries, journal.at)
    return figures


@asynccontextmanager
async def _installation() -> AsyncIterator[tuple[JetStream, Names, Path]]:
    with tempfile.TemporaryDirectory(prefix="angarium-bench-") as name:
        directory = Path(name)
        async with EmbeddedServer(directory / "nats", port=0) as server:
            settings = Settings(nats=(server.url,), shards=SHARDS)
            async with open_jetstream(settings) as js:
                await setup(js, installation(settings))
                yield js, Names(), directory


async def _catch_up(
    plan: LedgerPlan, journal: _Journal, writer: Writer, figures: LedgerFigures, js: JetStream, names: Names,
    on_step: Callable[[str], None],
) -> None:  # fmt: skip
    took_s = cpu_s = 0.0
    while journal.facts < plan.attempts:
        await journal.write(min(ROUND_FACTS, plan.attempts - journal.facts))
        before, began_at = usage(os.getpid()), time.perf_counter()
        await writer.catch_up()
        took_s += time.perf_counter() - began_at
        after = usage(os.getpid())
        if before and after:
            cpu_s += after.cpu_s - before.cpu_s
            figures.cpu_us_per_fact, figures.memory_mb = cpu_s / journal.facts * 1e6, after.memory_mb
        await js.purge(names.journal, journal.last)
        on_step(f"{journal.facts:,} facts, {journal.facts / took_s:,.0f} a second")
    figures.facts, figures.facts_per_s = journal.facts, journal.facts / took_s


async def _live(
    plan: LedgerPlan, journal: _Journal, writer: Writer, location: str, figures: LedgerFigures, names: Names
) -> None:
    """Write facts all the time. The reported CPU includes the writing."""
    running = asyncio.create_task(writer.run())
    before, facts, began_at = time.process_time(), journal.facts, time.perf_counter()
    try:
        async with open_for_queries(location) as queries:
            while (now := time.perf_counter()) < began_at + plan.live_s:
                # Whole flushes are written: what one round lacks is due in the next.
                due = FACTS_A_SECOND * (now - began_at + LIVE_FLUSHES_EVERY_S) - (journal.facts - facts)
                if due >= FLUSH_FACTS:
                    await journal.write(round(due))
                if now > began_at + 1:
                    progress = await queries.progress(names.journal)
                    behind_s = time.time() - max(progress.as_of, progress.seen_at) / 1000
                    figures.behind_s = max(figures.behind_s, behind_s)
                await asyncio.sleep(max(0.0, now + LIVE_FLUSHES_EVERY_S - time.perf_counter()))
                if running.done():
                    running.result()
        lasted_s = time.perf_counter() - began_at
        figures.live_facts_per_s = (journal.facts - facts) / lasted_s
        figures.live_cpu = (time.process_time() - before) / lasted_s
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def _query_times_ms(queries: LedgerQueries, at: float) -> dict[str, float]:
    """The time of each query, the best of several runs."""
    name, now = f"{TENANT}.r0", round(at * 1000)
    number = await queries.receiver(name) or 0

    def attempts(**wanted: Any) -> Callable[[], Awaitable[object]]:
        return lambda: queries.attempts(number, AttemptFilter(limit=51, **wanted))

    (newest,) = await queries.attempts(number, AttemptFilter(limit=1))
    timed: dict[str, Callable[[], Awaitable[object]]] = {
        "attempts, newest": attempts(),
        "attempts, an hour ago": attempts(since=now - 3_700_000, until=now - 3_600_000),
        "attempts that failed": attempts(failed=True),
        "attempts with status 503": attempts(status=(503, 503)),
        "attempts with a status that never came": attempts(status=(418, 418)),
        "attempts of a type": attempts(type=TYPES[0]),
        "attempts of a rare type": attempts(type=RARE_TYPE),
        "an event's journey": lambda: queries.journey(newest.event or ""),
        "the oldest event's journey": lambda: queries.journey(f"event-{1:012}"),
        "history": lambda: queries.changes(number),
        "the last answer": attempts(failed=True),
        "top failing": lambda: queries.failing(10),
        "top late, an hour": lambda: queries.late(now - 3_600_000, 10),
        "throughput by minute, an hour": lambda: queries.minutes(number, now - 3_600_000, now),
        "audit, an hour": lambda: queries.starts(number, now - 3_600_000, now, 200_000),
        "state now": lambda: queries.moment(number, name, now),
        "state half an hour ago": lambda: queries.moment(number, name, now - 1_800_000),
    }
    found = {}
    for what, ask in timed.items():
        times = []
        for _ in range(ASKED_TIMES):
            began_at = time.perf_counter()
            await ask()
            times.append(time.perf_counter() - began_at)
        found[what] = min(times) * 1000
    return found
