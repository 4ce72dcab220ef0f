"""A stage for scenarios: the world, checkers and product of a run, in which nothing happens by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

import msgspec

from actors.errors import Unavailable
from streams.fleet.placement import PLACEMENT_VERSION
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.sim.checks.checkers import Checkers
from tests.sim.plan import Plan
from tests.sim.run import Run, WatchedReplicas
from tests.sim.server.sessions import Frame
from tests.sim.server.streams.replica import Replica
from tests.sim.server.streams.store import Store
from tests.sim.server.streams.stream import Stream
from tests.sim.server.timing import WorldTiming
from tests.sim.world.faults import Faults
from tests.sim.world.process import Process
from tests.sim.world.receivers import Manner
from tests.sim.world.world import RunFailed

LIMIT_S = 120.0
R = "acme.r0"
URL = "https://example.com/a"

Deal = Callable[[], None]


class _Messages:
    """A gate: `judge` gets each message, and what lets the server have it."""

    def __init__(self, judge: Callable[[Message, Deal], None]) -> None:
        self._judge = judge

    def arrives(self, frame: Frame, deal: Deal) -> None:
        if isinstance(frame, Message):
            self._judge(frame, deal)
        else:
            deal()


class _Standing(WatchedReplicas):
    """Replicas that hear of nothing any more."""

    def __init__(self, stream: Stream, checkers: Checkers) -> None:
        super().__init__(stream, checkers)
        self._store = Replica(stream.store).store

    def one(self, chance: Random, behind_max: int) -> Store:
        return self._store


class Stage:
    """A stage whose receivers answer well. Made by `staged`."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.world = run.world
        self.checkers = run.checkers
        self._lag = self._deposed = 0.0
        self.receivers_are_good()
        self.nodes_know(PLACEMENT_VERSION)

    # ---- what people do

    def do(self, work: Callable[[JetStream], Awaitable[None]]) -> None:
        """Do something over a connection, and return when it is done."""

        async def main(process: Process) -> None:
            wire = await self.run.network.connect(process)
            js = JetStream(wire)
            await js.start()
            await work(js)
            await js.stop()
            await wire.close()

        process = self.world.spawn("script", main)
        self.until(lambda: not process.alive)

    def put(self, receiver: str = R, **members: object) -> None:
        raw = msgspec.json.encode({"url": URL, "retry": {"base_s": 0.05, "cap_s": 0.1}} | members)

        async def put(js: JetStream) -> None:
            assert isinstance(await js.publish(self.run.names.receiver(receiver), raw), Stored)

        self.do(put)

    def publish(
        self, *ids: str, receiver: str = R, source: int = 0, region: str = "", body: bytes = b"{}"
    ) -> None:  # fmt: skip
        """Sends an event to one receiver; with a `source`, as a copy that the router makes of that event."""

        async def publish(js: JetStream) -> None:
            for each in ids:
                headers = {"Angarium-Id": each} | ({"Angarium-Source": str(source)} if source else {})
                headers |= {"Angarium-Region": region} if region else {}
                answer = await js.publish(self.run.names.publish_to(receiver), body, headers)
                assert isinstance(answer, Stored)

        self.do(publish)

    def post_without_record(self, *ids: str) -> None:
        """Lets an owner post events and die with the facts about them; their receiver is paused then."""
        self.put()
        first = self.node()
        self.lose_facts(b'"delivered"', self.owner())
        self.publish(*ids)
        self.wait(0.5)
        first.kill()
        self.put(paused=True)

    def delete(self, *positions: int) -> None:
        """An operator deletes messages of the deliveries."""

        async def delete(js: JetStream) -> None:
            for each in positions:
                assert await js.delete(self.run.names.deliveries, each)

        self.do(delete)

    def announce(self, *ids: str, tenant: str = "acme", region: str = "") -> None:
        """Publish to all who subscribe; the body is the id."""

        async def announce(js: JetStream) -> None:
            for each in ids:
                headers = {"Angarium-Id": each} | ({"Angarium-Region": region} if region else {})
                subject = self.run.names.publish_event(tenant, "order")
                assert isinstance(await js.publish(subject, each.encode(), headers), Stored)

        self.do(announce)

    def ask(self, verb: str, receiver: str = R, body: bytes = b"") -> None:
        """A control request, until it is granted."""

        async def ask(js: JetStream) -> None:
            subject = self.run.names.control(verb, *receiver.split("."))
            while True:
                with suppress(Unavailable):
                    if msgspec.json.decode((await js.request(subject, body, 5.0)).data)["ok"]:
                        return
                await asyncio.sleep(0.1)

        self.do(ask)

    def demand(self, verb: str, receiver: str = R, body: bytes = b"") -> None:
        """A control request; its owner may die before it answers."""

        async def demand(js: JetStream) -> None:
            await js.wire.publish(self.run.names.control(verb, *receiver.split(".")), body, "_INBOX.nobody")
            await asyncio.sleep(0.01)  # The server drops what it has not taken when a connection ends.

        self.do(demand)

    # ---- what happens to nodes

    def nodes_know(self, placement: int) -> None:
        """Nodes that start from now on know this placement, and no newer one."""
        self.run.placement = lambda: placement

    def node(self) -> Process:
        """A node that is there."""
        process = self.run.start_node()
        self.until(lambda: process.name in self.checkers.nodes)
        return process

    def owner(self) -> Process:
        """Waits for an owner of shard 0, and returns it."""
        self.until(lambda: self._owner() is not None)
        owner = self._owner()
        assert owner is not None
        return owner

    def _owner(self) -> Process | None:
        for name, node in self.checkers.nodes.items():
            if 0 in node.owned and not node.owned[0].ended.is_set():
                return self.run.processes[name]
        return None

    def stop(self, process: Process) -> None:
        """In order; returns when it has ended."""
        process.post(self.run.stops[process.name].set)
        self.until(lambda: not process.alive)

    def at_start(self, number: int, act: Callable[[Process], None]) -> None:
        """Do something to the node that starts the nth attempt of all."""

        def started(process: Process) -> None:
            if self.checkers.starts == number:
                act(process)

        self.checkers.on_start = started

    def gate(self, judge: Callable[[Message, Deal], None]) -> None:
        self.run.server.gate = _Messages(judge)

    def hold_reads(self, stream: str) -> Callable[[], None]:
        """From now on no direct get of that stream by a node arrives; returns what lets them."""
        held: list[Deal] = []
        released: list[bool] = []

        def judge(message: Message, deal: Deal) -> None:
            reads = message.subject == f"$JS.API.DIRECT.GET.{stream}"
            if reads and message.reply.startswith("_INBOX.node-") and not released:
                held.append(deal)
            else:
                deal()

        def release() -> None:
            released.append(True)
            for deal in held:
                deal()

        self.gate(judge)
        return release

    def lose_facts(self, tag: bytes, owner: Process) -> None:
        """Flushes with such a fact get lost as long as that owner lives."""

        def judge(message: Message, deal: Deal) -> None:
            if not (".journal." in message.subject and tag in message.data and owner.alive):
                deal()

        self.gate(judge)

    def let_replicas_stand(self, stream: str) -> None:
        """From now on direct gets from that stream know what is stored by now, and nothing newer."""
        standing = self.run.server.streams[stream]
        standing.replicas = _Standing(standing, self.checkers)
        self._lag = 1.0
        self._begin_faults()

    def let_replicas_go_on(self, stream: str) -> None:
        """Lets replicas know again what is stored."""
        self.run.server.streams[stream].replicas = WatchedReplicas(
            self.run.server.streams[stream], self.checkers
        )
        self._lag = 0.0
        self._begin_faults()

    def set_server_clock(self, skew_s: float) -> None:
        """Set the server's clock that much wrong."""
        timing = self.run.server.timing
        assert isinstance(timing, WorldTiming)
        timing.skew_s = skew_s

    def depose(self, stream: str, answers: float) -> None:
        """The stream gets another leader, and the old one goes on answering, as probably as that."""
        if self.run.server.streams[stream].deposed is None:
            self.run.server.streams[stream].depose()
        self._deposed = answers
        self._begin_faults()

    def let_leaders_find_out(self) -> None:
        """No leader answers any more that was deposed."""
        self._deposed = 0.0
        self._begin_faults()

    def _begin_faults(self) -> None:
        self.run.network.begin(Faults(lag=self._lag, deposed=self._deposed))

    # ---- what receivers do

    def receiver_is(self, manner: Manner, receiver: str = R) -> None:
        """Set on one thing; `receivers_are_good` ends that."""
        self.run.receivers.set_on(receiver, manner)

    def receiver_says(self, header: str, receiver: str = R) -> None:
        """Adds this header to all its answers, until `receivers_are_good`."""
        self.run.receivers.says_always(receiver, header)

    def receivers_are_good(self) -> None:
        self.run.receivers.calm()

    def delivered(self, receiver: str = R) -> set[int]:
        """The positions that are recorded as delivered."""
        return self.checkers.journal_of(receiver).delivered.get(receiver, set())

    # ---- time

    def until(self, condition: Callable[[], bool]) -> None:
        self.world.run(condition, LIMIT_S)

    def wait(self, time_s: float) -> None:
        self.world.run_for(time_s)

    def expect(self, truth: bool, otherwise: str) -> None:
        if not truth:
            raise RunFailed(otherwise)

    def settle(self) -> None:
        """Until everything is settled; then it is judged."""
        self.run.settle(LIMIT_S, 0.1)
        self.wait(1.0)
        self.checkers.check_end()
        self.wait(0.001)


def old(count: int) -> list[str]:
    """`count` ids of old events."""
    return [f"old{number}" for number in range(count)]


@contextmanager
def staged(plan: Plan | None = None, seed: int = 1) -> Iterator[Stage]:
    run = Run(seed, plan or Plan())
    with run.staged():
        yield Stage(run)
