"""`angarium bench calls`: the calls of functions that a node makes for one delivery, by folder and function.

The node runs in this process, on one shard; the server and the sink have processes of their own. While
events are published, by another thread, the node's event loop is blocked, so that all of them wait when it
continues. So each run does the same work, and the counts differ by less than a hundredth.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from cProfile import Profile
from threading import Thread
from typing import Any, Literal

import click
import msgspec
from msgspec import Struct

from angarium.access import open_jetstream
from angarium.bench.harness import SECRET, Bench, Harness, harness
from angarium.bench.measuring.counting import Calls, calls_of
from angarium.bench.publishing import body, run_all, stored
from angarium.development.local_node import LOOPBACK
from angarium.node.app import open_node
from angarium.node.node import Node
from angarium.settings import Settings
from streams.nats.wire_names import EVENT_TYPE, MESSAGE_ID

PROGRESS_POLL_S = 0.05
GIVE_UP_AFTER_S = 30.0
BODY_BYTES = 1000
BENCH_EVENT_TYPE = "bench.calls"

DeliveryKind = Literal["strict", "relaxed", "fanned out"]
DELIVERY_KINDS: tuple[DeliveryKind, ...] = ("strict", "relaxed", "fanned out")


class CallsPlan(Struct, frozen=True, kw_only=True):
    """A plan: in each round, each receiver of a kind gets `in_a_row` events at once.

    A round with more than 64 events would include the pauses of flow control (`actors.runtime.flow_control`).
    """

    receivers: int = 30
    in_a_row: int = 2
    rounds: int = 8

    @property
    def deliveries(self) -> int:
        """The number of deliveries of one round."""
        return self.receivers * self.in_a_row


class CallsFigures(Struct, frozen=True, kw_only=True):
    """Calls for one delivery of one kind, and how the deliveries came."""

    way: DeliveryKind
    deliveries: int
    calls: Calls
    lost: int
    repeats: int
    disordered: int


class CallsBench(Bench[CallsPlan]):
    """The rounds of all kinds over one node."""

    def __init__(self, plan: CallsPlan, harness: Harness, on_step: Callable[[str], None]) -> None:
        super().__init__(plan, harness, on_step)
        self._settings = Settings(
            nats=(harness.url,), shards=harness.shards, allow_http=True, allow_networks=LOOPBACK, node="bench"
        )
        self._published = 0
        self._due = 0

    async def run(self) -> list[CallsFigures]:
        """Count. Raises click.ClickException if events were not accepted, or did not arrive."""
        await self._configure()
        async with open_node(self._settings) as node:
            await node.until_ready()
            return [await self._count(node, kind) for kind in DELIVERY_KINDS]

    async def _count(self, node: Node, kind: DeliveryKind) -> CallsFigures:
        plan, profile = self._plan, Profile()
        self._on_step(f"count calls of {plan.rounds * plan.deliveries} deliveries, {kind}")
        await self._round(node, kind)  # Receivers are loaded, and connections are opened.
        await self._sink.forget()
        for _ in range(plan.rounds):
            await self._round(node, kind, profile)
        report, deliveries = await self._sink.report(), plan.rounds * plan.deliveries
        return CallsFigures(
            way=kind, deliveries=deliveries, calls=calls_of(profile, deliveries),
            lost=deliveries - report.deliveries, repeats=report.repeats, disordered=report.disordered,
        )  # fmt: skip

    async def _round(self, node: Node, kind: DeliveryKind, profile: Profile | None = None) -> None:
        """Publish the events of a round, and return when all are delivered, recorded and acked."""
        while_loop_is_blocked(self._publish(kind))
        self._due += self._plan.deliveries
        if profile is not None:
            profile.enable()
        try:
            await self._settled(node)
        finally:
            if profile is not None:
                profile.disable()

    async def _settled(self, node: Node) -> None:
        totals, (shard,) = node.context.totals, node.owned.values()
        until = time.monotonic() + GIVE_UP_AFTER_S
        while totals.actors.deliveries["delivered"] < self._due or shard.host.shard_unacked.unacked_count:
            if time.monotonic() > until:
                raise click.ClickException(f"not every event was delivered: {totals.actors.deliveries}")
            await asyncio.sleep(PROGRESS_POLL_S)
        await shard.host.confirmed_to(shard.journal.index)

    async def _configure(self) -> None:
        for kind in DELIVERY_KINDS:
            policy: dict[str, object] = {"secrets": [SECRET]}
            if kind == "relaxed":
                policy["order"] = "relaxed"
            if kind == "fanned out":
                policy["events"] = [">"]
            for number in range(self._plan.receivers):
                url = f"{self._sink.url}{_tenant(kind)}/{number}"
                text = msgspec.json.encode({"url": url, **policy})
                stored(await self._js.publish(self._names.receiver(f"{_tenant(kind)}.r{number}"), text))

    async def _publish(self, kind: DeliveryKind) -> None:
        """Publish the events of one round, over a connection of its own."""
        plan, names, tenant = self._plan, self._names, _tenant(kind)
        async with open_jetstream(self._settings, second=True) as js:

            async def publish(number: int) -> None:
                subject = names.publish_to(f"{tenant}.r{number % plan.receivers}")
                if kind == "fanned out":
                    subject = names.publish_event(tenant, BENCH_EVENT_TYPE)
                headers = {MESSAGE_ID: f"bench-{number}", EVENT_TYPE: BENCH_EVENT_TYPE}
                stored(await js.publish(subject, body(BODY_BYTES), headers))

            first, count = self._published, plan.in_a_row if kind == "fanned out" else plan.deliveries
            self._published += count
            await run_all(publish, range(first, first + count))


def _tenant(kind: DeliveryKind) -> str:
    return kind.partition(" ")[0]


def while_loop_is_blocked(work: Coroutine[Any, Any, None]) -> None:
    """Do the work on another thread, while the event loop of this one is blocked."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            asyncio.run(work)
        except Exception as error:
            errors.append(error)

    thread = Thread(target=run, name="publisher")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


async def measure(plan: CallsPlan, on_step: Callable[[str], None]) -> list[CallsFigures]:
    """Run the bench."""
    async with harness(1) as on:
        return await CallsBench(plan, on, on_step).run()
