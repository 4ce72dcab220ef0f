"""The simulated network and server under the real `JetStream`: what is acknowledged stays stored."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from actors.errors import Unavailable
from streams.nats.answers import Refused, Stored, Unanswered
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.sim.server import FakeServer
from tests.sim.world.faults import CALM, Faults, draw
from tests.sim.world.network import Network, SimWire
from tests.sim.world.process import Process
from tests.sim.world.world import World

LAST = "Nats-Expected-Last-Subject-Sequence"
STREAM = {"name": "S", "subjects": ["s.>"], "allow_direct": True, "num_replicas": 1}

Work = Callable[[JetStream], Awaitable[None]]


class Run:
    """A world with a server and a network; `work` runs in one process until it ends."""

    def __init__(self, seed: int, faults: Faults = CALM, *, clustered: bool = False) -> None:
        self.world = World(seed)
        self.server = FakeServer(self.world, clustered=clustered)
        self.network = Network(self.world, self.server, faults)
        self.wire: SimWire | None = None

    def __call__(self, work: Work, limit_s: float = 600) -> None:
        async def main(process: Process) -> None:
            self.wire = await self.network.connect(process)
            js = JetStream(self.wire)
            await js.start()
            while True:
                try:
                    await js.stream_create(STREAM)
                    break
                except Unavailable:
                    await asyncio.sleep(0.1)
            await work(js)

        with self.world:
            process = self.world.spawn("node", main)
            self.world.run(lambda: not process.alive, limit_s)
            self.world.run_for(1.0)

    def stored(self) -> list[bytes]:
        return [message.data for message in self.server.streams["S"].store.messages.values()]


async def append(js: JetStream, data: bytes, last: int) -> int:
    """Append under an expectation until it is known to be stored, as the journal does."""
    while True:
        match await js.publish("s.journal", data, {LAST: str(last)}):
            case Stored(sequence):
                return sequence
            case Refused(10071):
                try:
                    there = await js.last_message("S", "s.journal")
                except Unavailable:
                    continue
                assert there is not None
                assert there.data == data
                return there.position
            case Refused(code):
                assert code in (10158, 10164)
            case Unanswered():
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("seed", range(40))
def test_a_chain_of_expectations_holds_through_all_faults(seed: int) -> None:
    clustered = bool(seed % 2)
    run = Run(seed, draw(Random(seed), clustered=clustered), clustered=clustered)

    async def work(js: JetStream) -> None:
        last = 0
        for number in range(200):
            last = await append(js, b"%d" % number, last)
            await asyncio.sleep(run.world.rng.random())
            if number == 150:
                run.network.calm()

    run(work, limit_s=100_000)
    assert run.stored() == [b"%d" % number for number in range(200)]


def test_the_same_seed_does_the_same() -> None:
    histories = []
    for _ in range(2):
        run = Run(5, Faults(cut_request=0.05, cut_answer=0.05, hiccup=0.1, hiccup_s=1.0, restart_every_s=5.0))

        async def work(js: JetStream, run: Run = run) -> None:
            last = 0
            for number in range(100):
                last = await append(js, b"%d" % number, last)
                await asyncio.sleep(run.world.rng.random())

        run(work, limit_s=100_000)
        histories.append(run.world.history())
    assert histories[0] == histories[1]
    assert len(histories[0]) > 20


def test_a_cut_connection_is_noticed_made_again_and_keeps_its_subscriptions() -> None:
    run = Run(1, Faults(notice_s=4.0))
    changes: list[bool] = []
    heard: list[bytes] = []

    async def work(js: JetStream) -> None:
        wire = run.wire
        assert wire is not None
        wire.on_change(changes.append)
        await wire.subscribe("news", lambda message: heard.append(message.data))
        run.network.cut(wire)
        await wire.publish("news", b"into the void")
        await asyncio.sleep(5.0)
        assert changes == [False, True]
        run.network.restart_server(1.0)
        await asyncio.sleep(0.1)
        await wire.publish("news", b"kept for the next connection")
        assert isinstance(await js.publish("s.a", b""), Unanswered)
        await asyncio.sleep(2.0)

    run(work)
    assert changes == [False, True, False, True]
    assert heard == [b"kept for the next connection"]


def test_a_server_that_is_killed_has_everything_that_it_acknowledged() -> None:
    run = Run(2)

    async def work(js: JetStream) -> None:
        acknowledged = []
        run.world.after(0.05, run.network.restart_server, 3.0)
        for number in range(1000):
            match await js.publish("s.a", b"%d" % number):
                case Stored():
                    acknowledged.append(b"%d" % number)
                case Unanswered():
                    await asyncio.sleep(0.1)
        assert 100 < len(acknowledged) < 1000
        assert set(acknowledged) <= set(run.stored())

    run(work)


def test_a_replica_lags_but_the_leader_does_not() -> None:
    run = Run(3, Faults(lag=0.5, lag_changes=5))

    async def work(js: JetStream) -> None:
        behind = []
        for number in range(1, 101):
            assert await js.publish("s.a", b"") == Stored(number)
            page = await js.read("S", "s.a", 1)
            behind.append(number - len(page.messages))
            last = await js.last_message("S", "s.a")
            assert last is not None
            assert last.position == number
        assert set(behind) >= {0, 1, 5}
        assert max(behind) == 5
        run.network.calm()
        assert len((await js.read("S", "s.a", 1)).messages) == 100

    run(work)


def test_without_a_leader_nothing_is_stored_and_replicas_can_be_read() -> None:
    run = Run(4)

    async def work(js: JetStream) -> None:
        assert await js.publish("s.a", b"") == Stored(1)
        run.network.take_leader(run.server.streams["S"], 3.0)
        assert isinstance(await js.publish("s.a", b""), Unanswered)
        with pytest.raises(Unavailable):
            await js.last_message("S", "s.a")
        assert len((await js.read("S", "s.a", 1)).messages) == 1
        await asyncio.sleep(3.0)
        assert await js.publish("s.a", b"") == Stored(2)

    run(work)


def test_a_delivery_that_was_lost_leaves_a_hole_in_the_consumers_numbers() -> None:
    run = Run(5, Faults(lost=0.1))
    numbers: list[int] = []

    def on_message(message: Message) -> None:
        if message.reply:
            numbers.append(int(message.reply.split(".")[6]))

    async def work(js: JetStream) -> None:
        await js.consumer_create("S", {"name": "c", "ack_policy": "all", "mem_storage": True})
        inbox = js.wire.new_inbox()
        await js.wire.subscribe(inbox, on_message)
        for _ in range(100):
            assert isinstance(await js.publish("s.a", b""), Stored)
        await js.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch": 100}', inbox)
        await asyncio.sleep(1)
        info = await js.consumer_info("S", "c")
        assert info is not None
        assert info.delivered_consumer == 100

    run(work)
    assert numbers == sorted(numbers)
    assert 70 < len(numbers) < 100


def test_a_request_of_a_killed_process_may_still_arrive() -> None:
    arrived = set()
    for seed in range(40):
        run = Run(seed)

        async def work(js: JetStream, run: Run = run) -> None:
            for number in range(5):
                await js.wire.publish("s.a", b"%d" % number)
            run.world.processes[0].kill()
            await js.wire.publish("s.a", b"from the dead")

        run(work)
        assert run.stored() == [b"%d" % number for number in range(len(run.stored()))]
        arrived.add(len(run.stored()))
    assert {0, 5} < arrived
