"""A run with jobs and erasures: processes of the API run jobs, clients ask for them, and all may die.

First events are delivered or die, calmly. Then everything goes wrong for a while, and clients ask for
replays, redrives and erasures. After that everything has to be done, each thing once.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from actors.errors import Unavailable
from actors.machine.outcome import Answered, Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.access import Access
from angarium.api.background import jobs as background
from angarium.api.background.jobs import Jobs
from angarium.operations.failures import NotDone
from angarium.operations.jobs import begin, plans, run
from angarium.operations.jobs.begin import StartedJob, begin_redrive, begin_replay
from angarium.operations.replays import replay
from angarium.operations.replays.resendable import ReplayFilter
from angarium.settings import Settings
from streams.buckets.stored_configurations import StoredConfigurations
from streams.dead_letters.letters import LetterFilter
from streams.erasing.erasures import Erasures
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.nats.wire import Message
from streams.storage import purge
from tests.sim.plan import Plan
from tests.sim.resending.judgement import ResendingCheckers, content
from tests.sim.run import ProcessTime, Run
from tests.sim.server.sessions import Frame
from tests.sim.world.faults import draw
from tests.sim.world.process import Process
from tests.sim.world.receivers import POISON, SimSender
from tests.sim.world.world import World

RECEIVERS = ("acme.r0", "acme.r1", "umbra.r2")
LIMIT_S = 600.0
DUPLICATE_WINDOW_NS = 35 * 10**9
"""A little more than the time for which a copy is sent again while there is no answer."""
RETRY_S = 1.0
KEEP_S = 86_400.0
CONFIGURATION = msgspec.json.encode({"url": "https://example.com/a", "retry": {"base_s": 0.05, "cap_s": 0.1}})
_EVERYTHING = ReplayFilter(since=0.0)

Ask = Callable[[Access, Process], Awaitable[bool]]
"""A request of a client; False if it has to be sent again."""


class EchoingSender(SimSender):
    """A sender whose receivers repeat the body when they do not take it."""

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        outcome = await super().send(attempt)
        if isinstance(outcome, Answered) and outcome.status >= 300:
            return replace(outcome, body=b"".join(event.body for event, _ in attempt.numbered))
        return outcome


def drawn_plan(chance: Random) -> Plan:
    """Draws the plan of a run: each seed likes and dislikes other things."""
    clustered = chance.random() < 0.4
    return Plan(
        receivers=RECEIVERS,
        shards=chance.choice((1, 2)),
        clustered=clustered,
        faults=draw(chance, clustered=clustered),
        duration_s=chance.choice((10.0, 20.0, 40.0)) * chance.uniform(0.5, 1.0),
        snapshot_every_s=chance.choice((0.3, 2.0, 5.0)),
        idle_s=chance.choice((0.5, 60.0)),
        maintenance_every_s=chance.choice((1.0, 3.0)),
        replay_keep_s=KEEP_S,
    )


class ResendingRun(Run):
    """Made of a seed, or for a scenario of a plan."""

    checkers: ResendingCheckers
    checkers_type = ResendingCheckers
    sender_type = EchoingSender

    def __init__(self, seed: int, plan: Plan | None = None, *, trace: bool = False) -> None:
        self.chance = chance = Random(f"{seed} resending")
        super().__init__(seed, plan or drawn_plan(chance), trace=trace)
        self.checkers.begin(self.server.streams)
        self.apis: dict[str, Process] = {}
        self.clients: dict[str, Process] = {}
        self._started = 0
        self.apis_max = chance.choice((1, 2, 3))
        self._kill_every_s = chance.choice((0.5, 2.0, 8.0))
        self._at_frame = chance.random() < 0.7
        self._frames_until = chance.randint(1, 100)
        self._over = False
        self._removals = Random(f"{seed} removals")
        self._journal_share = chance.choice((0.0, 1.0))
        # Some runs go on for longer than the deliveries know message ids.
        patient = chance.random() < 0.4
        self._stands_still_s = (0.5, 4.0, 6.0, 30.0, *((90.0,) if patient else ()))
        self._away_s = (5.0, 60.0) if patient else (5.0,)

    # ---- processes

    def access(self, js: JetStream) -> Access:
        """The access of a client or of a process of the API."""
        return Access(js, Settings(shards=self.plan.shards, replay_keep_s=KEEP_S))

    def start_api(self) -> Process:
        """Start another process of the API, as far as it runs jobs."""
        self._started += 1

        async def main(process: Process) -> None:
            wire = await self.network.connect(process)
            js = JetStream(wire)
            await js.start()
            jobs, stop = Jobs(self.access(js)), asyncio.Event()
            self.stops[process.name] = stop
            jobs.start()
            await stop.wait()
            await jobs.stop()
            await js.stop()
            await wire.close()

        process = self.world.spawn(f"api-{self._started}", main)
        self.apis[process.name] = process
        process.at_end(lambda: self._api_gone(process.name))
        return process

    def _api_gone(self, name: str) -> None:
        del self.apis[name]
        self.stops.pop(name, None)
        self.world.after(self.chance.choice(self._away_s) * self.chance.random(), self._replace_api)

    def _replace_api(self) -> None:
        if len(self.apis) < self.apis_max:
            self.start_api()

    def client(self, ask: Ask) -> Process:
        """Start a client, which sends its request until it is granted; one that dies is replaced."""
        self._started += 1

        async def main(process: Process) -> None:
            wire = await self.network.connect(process)
            js = JetStream(wire)
            await js.start()
            while not await ask(self.access(js), process):  # noqa: ASYNC110
                await asyncio.sleep(RETRY_S)
            granted.append(True)
            await js.stop()
            await wire.close()

        def gone() -> None:
            del self.clients[process.name]
            if not granted:
                self.world.after(self.chance.random(), self.client, ask)

        granted: list[bool] = []
        process = self.world.spawn(f"client-{self._started}", main)
        self.clients[process.name] = process
        process.at_end(gone)
        return process

    # ---- what clients ask for

    def replays(self, receiver: str, key: str, per_second: float = 100.0) -> Ask:
        """A replay of all that the receiver got so far."""

        async def ask(access: Access, process: Process) -> bool:
            return _granted(process, await begin_replay(access, receiver, _EVERYTHING, per_second, key))

        return ask

    def redrives(self, tenant: str, key: str) -> Ask:
        """A redrive of all letters of the tenant."""

        async def ask(access: Access, process: Process) -> bool:
            wanted = LetterFilter(receivers=f"{tenant}.*")
            return _granted(process, await begin_redrive(access, tenant, wanted, key))

        return ask

    def erases(self, tenant: str, event: str) -> Ask:
        """The erasure of an event."""

        async def ask(access: Access, process: Process) -> bool:
            try:
                await Erasures(access.js, access.names).request(
                    tenant, event, "a client", process.wall_clock()
                )
            except Unavailable:
                return False
            return True

        return ask

    def removes(self, receiver: str, away_s: float = math.inf) -> Ask:
        """The removal of a receiver, and a new one of that name after a time."""

        async def ask(access: Access, process: Process) -> bool:
            receivers = StoredConfigurations(access.js, access.names)
            process.say("removes %s", receiver)
            if not isinstance(await receivers.delete(receiver), Stored):
                return False
            if away_s < math.inf:
                await asyncio.sleep(away_s)
                while not isinstance(await receivers.put(receiver, CONFIGURATION), Stored):  # noqa: ASYNC110
                    await asyncio.sleep(RETRY_S)
            return True

        return ask

    # ---- what goes wrong

    def arrives(self, frame: Frame, deal: Callable[[], None]) -> None:
        """A frame reaches the server. Its sender may die or hang, before or after that."""
        victim = self._victim(frame)
        if victim is None:
            self.process_faults.arrives(frame, deal)
            return
        self._frames_until = self.chance.randint(1, 150)
        before = self.chance.random() < 0.5
        if before:
            self._hit(victim)
        deal()
        if not before:
            self._hit(victim)

    def _victim(self, frame: Frame) -> Process | None:
        if self._over or not self._at_frame or not isinstance(frame, Message):
            return None
        kind, _, rest = frame.reply.removeprefix("_INBOX.").partition("-")
        if kind not in ("api", "client"):
            return None
        self._frames_until -= 1
        found = self.apis if kind == "api" else self.clients
        return found.get(f"{kind}-{rest.partition('-')[0]}") if self._frames_until <= 0 else None

    def _hit(self, process: Process) -> None:
        draw_ = self.chance.random()
        if draw_ < 0.6:
            process.kill()
        elif draw_ < 0.7 and process.name in self.stops:
            process.post(self.stops[process.name].set)
        else:
            process.freeze(suspend=self.chance.random() < 0.3)
            self.world.after(self.chance.choice(self._stands_still_s) * self.chance.random(), process.wake)

    def _hit_one(self) -> None:
        if self._over:
            return
        there = [*self.apis.values(), *self.clients.values()]
        if there:
            self._hit(self.chance.choice(there))
        self.world.after(self.chance.expovariate(1 / self._kill_every_s), self._hit_one)

    # ---- its course

    @contextmanager
    def staged(self) -> Iterator[None]:
        share = patch.object(purge, "JOURNAL_SHARE", self._journal_share)
        with super().staged(), share, _clocks(self.world):
            yield

    def prepare(self, events: int = 12, dead: int = 4) -> None:
        """Calmly: receivers, and events for each that are delivered or die."""
        self.receivers.calm()
        self.start_node()

        async def publish(js: JetStream) -> None:
            config = (await stream_info(js, self.names.deliveries)).config
            await js.stream_update(config | {"duplicate_window": DUPLICATE_WINDOW_NS})
            for receiver in RECEIVERS:
                assert isinstance(await js.publish(self.names.receiver(receiver), CONFIGURATION), Stored)
            await asyncio.sleep(1.5)  # A subscription holds for what comes a second later.
            for receiver in RECEIVERS:
                for id_ in ids(receiver, events, dead):
                    subject = self.names.publish_to(receiver)
                    body = content(receiver.partition(".")[0], id_)
                    answer = await js.publish(subject, body, {"Angarium-Id": id_})
                    assert isinstance(answer, Stored)
            for number in range(2):
                subject, id_ = self.names.publish_event("acme", "order"), f"all{number}"
                assert isinstance(
                    await js.publish(subject, content("acme", id_), {"Angarium-Id": id_}), Stored
                )

        self.do(publish)
        self.settle(LIMIT_S, 0.5)

    def do(self, work: Callable[[JetStream], Awaitable[None]]) -> None:
        """Do something over a connection, and return when it is done."""

        async def main(process: Process) -> None:
            wire = await self.network.connect(process)
            js = JetStream(wire)
            await js.start()
            await work(js)
            await js.stop()
            await wire.close()

        process = self.world.spawn("script", main)
        self.world.run(lambda: not process.alive, LIMIT_S)

    def run(self) -> None:
        """Raises `RunFailed`."""
        chance = self.chance
        with self.staged():
            self.prepare(chance.randint(1, 12), chance.randint(0, 5))
            self.network.begin(self.plan.faults)
            for _ in range(self.process_faults.nodes - 1):
                self.start_node()
            for _ in range(self.apis_max):
                self.start_api()
            self.process_faults.start()
            self.server.gate = self
            self.checkers.on_start = self.process_faults.started
            self._hit_one()
            for ask in self._wishes():
                self.world.after(self.plan.duration_s * chance.random(), self.client, ask)
            self.world.run_for(self.plan.duration_s)
            self.calm()
            self.world.run(lambda: not self.clients, LIMIT_S)
            self.settle(LIMIT_S, 0.5)
            self.checkers.check_end()
            self.world.run_for(0.001)

    def _wishes(self) -> list[Ask]:
        chance = self.chance
        replayed, wishes = list[str](), list[Ask]()
        for number in range(chance.randint(1, 3)):
            replayed.append(chance.choice(RECEIVERS))
            wishes.append(self.replays(replayed[-1], f"k{number}", chance.choice((0.5, 5.0, 100.0))))
        wishes += [
            self.redrives(chance.choice(("acme", "umbra")), f"k{number}")
            for number in range(chance.randint(1, 3))
        ]
        for _ in range(chance.randint(0, 4)):
            receiver = chance.choice(RECEIVERS)
            event = chance.choice([*ids(receiver, 12, 5), "all0", "all1"])
            wishes.append(self.erases(receiver.partition(".")[0], event))
        if self._removals.random() < 0.4:
            away_s = self._removals.choice((0.1, 8.0, 30.0))
            wishes.append(self.removes(self._removals.choice(replayed), away_s))
        return wishes

    def calm(self) -> None:
        """End what goes wrong."""
        self._over = True
        self.network.calm()
        self.receivers.calm()
        self.process_faults.calm()
        for process in [*self.apis.values(), *self.clients.values()]:
            process.wake()
        self._replace_api()


def ids(receiver: str, events: int, dead: int) -> list[str]:
    """The ids of its events; the last ones are rejected."""
    name = receiver.replace(".", "-")
    return [f"{name}-e{n}" for n in range(events)] + [f"{POISON}-{name}-d{n}" for n in range(dead)]


def _granted(process: Process, answer: StartedJob | NotDone) -> bool:
    process.say("is answered %s", answer)
    return isinstance(answer, StartedJob) and answer.mine


@contextmanager
def _clocks(world: World) -> Iterator[None]:
    """The clocks of a process of the API are those of its simulated machine."""

    def of_process() -> ProcessTime:
        process = world.stepping
        assert process is not None
        return ProcessTime(process)

    with ExitStack() as stack:
        for module in (background, begin, plans, replay, run):
            stack.enter_context(patch.object(module, "SystemTime", of_process))
        yield
