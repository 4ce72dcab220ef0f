"""`angarium bench api`: publishing over HTTP, compared with a bare Litestar route in the same run.

A server, a node, a sink, the API, the bare route and the client each have a process of their own. The two
sides of a comparison alternate, since a shared machine changes from minute to minute. Only the events of the
steady part are delivered: the full load goes to a paused receiver while no node runs, so that it measures the
API alone.
"""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime

import click
from msgspec import Struct

from angarium.bench.harness import SECRET, SHARDS, Harness, harness
from angarium.bench.over_http.client import Order
from angarium.bench.over_http.processes import LineProcess, check, line_process, serving_api
from angarium.bench.publishing import body, stored
from angarium.bench.sink import Report
from angarium.operations.tokens.secret import new_secret
from streams.buckets.api_tokens import Token, TokenStore
from streams.installation.topology import Names
from streams.nats.answers import Stored

PROGRESS_POLL_S = 0.05
GIVE_UP_AFTER_S = 15.0
STEADY_TENANT, FULL_TENANT = "steady", "full"
STEADY_RECEIVERS = 20
STEADY_CONNECTIONS = 16
STEADY_EVENT_TYPE, FULL_EVENT_TYPE = "bench.steady", "bench.full"


class ApiPlan(Struct, frozen=True, kw_only=True):
    """A plan: how many connections publish, how much, and for how long.

    `connections` publish events of `size` bytes one by one, `batch_connections` `batch` at a time. In each
    of the `rounds`, each of the two takes `timed_s`, and so does the bare route. Before that, `rate` events
    a second are published for `timed_s`.
    """

    connections: int = 64
    batch: int = 100
    batch_connections: int = 8
    size: int = 1000
    shards: int = SHARDS
    rate: int = 200
    rounds: int = 3
    timed_s: float = 3.0


class RequestFigures(Struct, frozen=True, kw_only=True):
    """Events (or requests) a second, and the CPU that each costs.

    The CPU of the server, of nats-server and of the client is in microseconds, and None if the system does
    not tell it."""

    per_s: float
    server_cpu_us: float | None
    nats_cpu_us: float | None
    client_cpu_us: float


class ApiFigures(Struct, frozen=True, kw_only=True):
    """Results of one run. `to_bare` is the ratio of single publishes to the bare route's answers.

    `p50_ms` and `p99_ms` are from when a publish was due at the plan's rate to the event's arrival.
    """

    connections: int
    batch: int
    single: RequestFigures
    bare: RequestFigures
    batched: RequestFigures
    to_bare: float
    rate: int
    delivered: int
    p50_ms: float
    p99_ms: float
    lost: int
    repeats: int
    disordered: int


class _Sum:
    """Total of the rounds of one kind of load."""

    def __init__(self) -> None:
        self.done = 0
        self.seconds = 0.0
        self.cpu_s: list[float | None] = [0.0, 0.0, 0.0]

    def add(self, done: int, seconds: float, cpu_s: tuple[float | None, ...]) -> None:
        self.done += done
        self.seconds += seconds
        self.cpu_s = [
            None if so_far is None or more is None else so_far + more
            for so_far, more in zip(self.cpu_s, cpu_s, strict=True)
        ]

    def figures(self) -> RequestFigures:
        server, nats, client = (None if each is None else each / self.done * 1e6 for each in self.cpu_s)
        return RequestFigures(
            per_s=self.done / self.seconds,
            server_cpu_us=server,
            nats_cpu_us=nats,
            client_cpu_us=client or 0.0,
        )


class ApiBench:
    """One run over one server, one API and one bare route. `on_step` is called with each step."""

    def __init__(
        self, plan: ApiPlan, harness: Harness, client: LineProcess, token: str, on_step: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._harness = harness
        self._client = client
        self._token = token
        self._on_step = on_step
        self._names = Names()

    async def run(self, api: tuple[int, int], bare: tuple[int, int]) -> ApiFigures:
        """Measure; `api` and `bare` are the port and the pid of the API and of the bare route."""
        plan = self._plan
        report, lost = await self._steady(api[0])
        single, alone, batched = _Sum(), _Sum(), _Sum()
        event = body(plan.size)
        items = [{"type": FULL_EVENT_TYPE, "data": "x" * (plan.size - 2)}] * plan.batch
        batch = json.dumps(items, separators=(",", ":")).encode()
        path = f"/v1/tenants/{FULL_TENANT}/events"
        for number in range(plan.rounds):
            self._on_step(f"round {number + 1} of {plan.rounds}: the bare route, single publishes, batches")
            await self._load(alone, bare, "/bare", event, plan.connections, 1)
            await self._load(single, api, f"{path}/{FULL_EVENT_TYPE}", event, plan.connections, 1)
            await self._load(batched, api, path, batch, plan.batch_connections, plan.batch)
            await self._harness.js.purge(self._names.events, up_to=1 << 60)
        return ApiFigures(
            connections=plan.connections, batch=plan.batch,
            single=single.figures(), bare=alone.figures(), batched=batched.figures(),
            to_bare=single.figures().per_s / alone.figures().per_s,
            rate=plan.rate, delivered=report.deliveries, p50_ms=report.p50_ms, p99_ms=report.p99_ms,
            lost=lost, repeats=report.repeats, disordered=report.disordered,
        )  # fmt: skip

    async def _load(
        self, into: _Sum, server: tuple[int, int], path: str, sent: bytes, connections: int, events: int
    ) -> None:
        """Make requests as fast as they are answered."""
        outcome = await self._client.carry_out(
            Order(
                port=server[0],
                heads=(self._head(path),),
                body=sent,
                connections=connections,
                seconds=self._plan.timed_s,
                watch=(server[1], self._harness.server_pid),
            )
        )
        into.add(outcome.answers * events, outcome.seconds, outcome.cpu_s)

    async def _steady(self, port: int) -> tuple[Report, int]:
        """Publish at the plan's rate while a node delivers; returns the arrivals and the number missing."""
        plan, node, sink = self._plan, self._harness.node(), self._harness.sink
        paths = [
            f"/v1/tenants/{STEADY_TENANT}/events/{STEADY_EVENT_TYPE}.r{number}"
            for number in range(STEADY_RECEIVERS)
        ]
        try:
            await node.start()
            await node.until_ready()
            self._on_step(f"publish and deliver {plan.rate} a second for {plan.timed_s:g} s")
            outcome = await self._client.carry_out(
                Order(
                    port=port,
                    heads=tuple(map(self._head, paths)),
                    body=body(plan.size),
                    connections=STEADY_CONNECTIONS,
                    seconds=plan.timed_s,
                    rate=plan.rate,
                )
            )
            until = time.monotonic() + GIVE_UP_AFTER_S
            while await sink.count() < outcome.sent and time.monotonic() < until:
                node.check()
                await asyncio.sleep(PROGRESS_POLL_S)
        finally:
            await node.stop()
        report = await sink.report()
        return report, outcome.sent - report.deliveries

    def _head(self, path: str) -> str:
        return (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {self._token}\r\n"
            "content-type: application/json\r\n"
        )


async def measure(plan: ApiPlan, on_step: Callable[[str], None]) -> ApiFigures:
    """Run the bench. Raises click.ClickException if the API is not installed."""
    check()
    async with harness(plan.shards) as on, line_process("angarium.bench.over_http.client") as client:
        token = await _configure(on)
        async with (
            serving_api(on.directory, {"nats": [on.url], "shards": on.shards}) as api,
            line_process("angarium.bench.over_http.bare") as bare,
        ):
            port = int(await bare.line())
            return await ApiBench(plan, on, client, token, on_step).run(api, (port, bare.pid))


async def _configure(harness: Harness) -> str:
    """Put the receivers, and a token for them; returns its text."""
    names, secret = Names(), new_secret()
    policies: dict[str, dict[str, object]] = {
        f"{STEADY_TENANT}.r{number}": {
            "url": f"{harness.sink.url}{number}",
            "secrets": [SECRET],
            "events": [f"{STEADY_EVENT_TYPE}.r{number}"],
        }
        for number in range(STEADY_RECEIVERS)
    }
    policies[f"{FULL_TENANT}.r0"] = {"url": f"{harness.sink.url}full", "events": [">"], "paused": True}
    for receiver, policy in policies.items():
        stored(await harness.js.publish(names.receiver(receiver), json.dumps(policy).encode()))
    token = Token(tenant="*", scopes=("publish",), hash=secret.hash, created_at=datetime.now(UTC))
    if not isinstance(answer := await TokenStore(harness.js, names).create(secret.id, token), Stored):
        raise click.ClickException(f"NATS did not accept a token: {answer}")
    return secret.text
