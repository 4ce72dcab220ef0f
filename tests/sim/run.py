"""One run: an installation, its nodes, producers and receivers, and faults for all of them.

Faults happen for a bounded time; after that everything has to settle, and what came of it is judged.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol
from unittest.mock import patch

from actors.configuration.policy import Policy, Rate
from actors.machine.event import Event
from actors.machine.numbering import Frontier
from actors.machine.scheduling.steps import Post, PostBatch, Step
from actors.machine.scheduling.view import View
from actors.machine.state import State
from actors.ports import Sender
from actors.runtime import actor, discard, flow_control, host
from actors.runtime.actor import Actor
from actors.runtime.discard import DiscardedEvents
from actors.tenant_settings import TenantSettings
from angarium.delivery.connections.down_hosts import DownHosts
from angarium.delivery.own_outage.outage_detector import OutageDetector
from angarium.node import app, shard_snapshots
from angarium.node.app import joined_node
from angarium.node.housekeeping import maintenance
from angarium.settings import Settings
from streams.buckets import follower
from streams.fleet.members import Members
from streams.installation import topology
from streams.installation.setup import setup
from streams.installation.topology import Names
from streams.journal import parked_receivers, snapshots
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.reading import pull_room
from streams.routing import ahead_reader, router, tenants
from streams.routing.selection import receiver_selection
from streams.routing.tenants import Tenants
from streams.storage import purge
from tests.sim.checks.checkers import Checkers
from tests.sim.checks.placement import misplaced
from tests.sim.fanout_producer import FanoutProducer
from tests.sim.plan import Plan, drawn
from tests.sim.process_faults import ProcessFaults
from tests.sim.server import FakeServer
from tests.sim.server.sessions import Frame, Session
from tests.sim.server.streams.replica import Change, PurgedMessage, Replicas
from tests.sim.server.streams.store import Stored
from tests.sim.server.streams.stream import Stream
from tests.sim.workload import Workload
from tests.sim.world.network import Network
from tests.sim.world.process import Process
from tests.sim.world.receivers import Receivers, SimSender
from tests.sim.world.world import Deadlock, LimitReached, World

SETUP_S = 60.0
SETTLE_S = 3600.0
PLACED_CHECK_EVERY_S = 0.1


class WatchedReplicas(Replicas):
    """The replicas of a stream, and a listener that is told what is stored."""

    def __init__(self, stream: Stream, checkers: Checkers) -> None:
        super().__init__(stream.store)
        self._stream = stream
        self._checkers = checkers

    def changed(self, change: Change) -> None:
        super().changed(change)
        if isinstance(change, Stored):
            self._checkers.stored(self._stream.name, change)
        elif isinstance(change, tuple):
            self._checkers.purged(self._stream.name, *change)
        elif isinstance(change, PurgedMessage):
            self._checkers.purged_one(self._stream.name, change.sequence)
        else:
            self._checkers.deleted(self._stream.name, change)


NodeSender = tuple[Sender, OutageDetector | None, DownHosts | None]
"""The sender of a node, and what it tells of its attempts."""


class Gate(Protocol):
    """Stands before the server."""

    def arrives(self, frame: Frame, deal: Callable[[], None]) -> None:
        """A frame has come; `deal` lets the server have it."""


class WatchedServer(FakeServer):
    """Tells which acks arrive, and when it is started again.

    Whatever arrives comes through the gate, if there is one.
    """

    checkers: Checkers | None = None
    gate: Gate | None = None
    _sender = ""

    def receive(self, session: Session, frame: Frame) -> None:
        if self.gate is None:
            self._deal(session, frame)
        else:
            self.gate.arrives(frame, partial(self._deal, session, frame))

    def start(self) -> None:
        super().start()
        if self.checkers is not None:
            self.checkers.letters.server_started()

    def _deal(self, session: Session, frame: Frame) -> None:
        self._sender = session.name
        super().receive(session, frame)

    def _ack(self, stream: str, name: str, position: int, number: int, message: object) -> bool:
        if self.checkers is not None and name.startswith(("shard-", "route-")):
            kind, shard, epoch = name.split("-")[:3]
            acked = self.checkers.acked if kind == "shard" else self.checkers.acked_events
            acked(self._sender, int(shard), int(epoch), position)
        return super()._ack(stream, name, position, number, message)  # type: ignore[arg-type]


class ProcessTime:
    """The `Timekeeper` of a simulated process."""

    def __init__(self, process: Process) -> None:
        self.wall = process.wall_clock
        self.boottime = process.boottime


class Reporter(logging.Handler):
    """Puts the product's log into the history; an error is a failure of the run."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        members = {name: value for name, value in vars(record).items() if name in _SAID}
        self._world.say("log %s %s", record.getMessage(), members)
        if record.levelno >= logging.ERROR:
            cause = record.exc_info[1] if record.exc_info else None
            self._world.fail(f"{record.getMessage()} {members} {cause!r}", cause)


_SAID = frozenset({"shard", "why", "node", "receiver", "epoch", "answer"})


class Run:
    """Made of a seed; `run` does it all. A scenario lays down the plan and acts within `staged`."""

    checkers_type = Checkers
    sender_type = SimSender

    def __init__(self, seed: int, plan: Plan | None = None, *, trace: bool = False) -> None:
        self.world = world = World(seed, history_max=None if trace else 400)
        self.plan = plan = plan or drawn(world)
        self.trace = trace
        self.names = Names()
        self.server = WatchedServer(world, clustered=plan.clustered, max_payload=plan.max_payload)
        self.network = Network(world, self.server)
        self.checkers = self.checkers_type(world, self.names, plan.shards, plan.ttl_s)
        self.checkers.rates_of_tenants.begin(_settings_of_tenants(plan))
        self.fanout_producer = FanoutProducer(self)
        self.workload = Workload(self)
        self.receivers = Receivers(world, plan.receivers, self.checkers)
        self.process_faults = ProcessFaults(self)
        self.stops: dict[str, asyncio.Event] = {}
        self.processes: dict[str, Process] = {}
        self.placement = self.process_faults.placement
        self.sender_of: Callable[[Process], NodeSender] = lambda process: (
            self.sender_type(process, self.receivers), None, None
        )  # fmt: skip
        self._nodes = 0
        self._dead: set[str] = set()

    # ---- its processes

    def start_node(self) -> Process:
        """Another process, under another name or under that of one that is dead."""
        self._nodes += 1
        name = self.process_faults.name(f"node-{self._nodes}", self._dead)
        self._dead.discard(name)
        process = self.world.spawn(name, self._node)
        process.skew_s = self.process_faults.skew_s()
        self.processes[process.name] = process
        process.at_end(lambda: self._gone(process.name))
        return process

    def _gone(self, name: str) -> None:
        for table in (self.processes, self.checkers.nodes, self.stops):
            table.pop(name, None)
        self._dead.add(name)
        self.checkers.gone(name)
        self.process_faults.missing()

    async def _node(self, process: Process) -> None:
        stop = self.stops[process.name] = asyncio.Event()
        wire = await self.network.connect(process)
        plan = self.plan
        settings = Settings(
            node=process.name, shards=plan.shards, ttl_s=plan.ttl_s, replay_keep_s=plan.replay_keep_s,
            tenants=_settings_of_tenants(plan),
        )  # fmt: skip
        sender, outage, down_hosts = self.sender_of(process)
        chance = self.world.random("saturation")
        async with joined_node(
            wire,
            settings,
            ProcessTime(process),
            sender,
            saturated=lambda: chance.random() < plan.saturated,
            patience_s=plan.patience_s,
            outage=outage,
            down_hosts=down_hosts,
        ) as node:
            self.checkers.nodes[process.name] = node
            await stop.wait()
        await wire.close()

    async def _setup(self, process: Process) -> None:
        wire = await self.network.connect(process)
        js = JetStream(wire)
        await js.start()
        await setup(
            js, topology.Installation(shards=self.plan.shards, replicas=3 if self.plan.clustered else 1)
        )
        rooms = {self.names.deliveries: self.plan.room, self.names.events: self.plan.events_room}
        for name, room in rooms.items():
            if room:
                await js.stream_update((await stream_info(js, name)).config | {"max_bytes": room})
        await js.stop()
        await wire.close()
        for stream in self.server.streams.values():
            stream.replicas = WatchedReplicas(stream, self.checkers)
        self.server.checkers = self.checkers

    # ---- its course

    def _on_start(self, process: Process) -> None:
        self.process_faults.started(process)
        self.workload.started()

    def run(self) -> None:
        """Raises `RunFailed`."""
        with self.staged():
            self.network.begin(self.plan.faults)
            for _ in range(self.process_faults.nodes):
                self.start_node()
            self.workload.start()
            self.fanout_producer.start()
            self.process_faults.start()
            self.server.gate = self.process_faults
            self.checkers.on_start = self._on_start
            self.world.run_for(self.plan.duration_s)
            self._calm()
            self.world.run(lambda: self.workload.done, SETTLE_S)
            self.settle(SETTLE_S, 0.5)
            self.until_placed(SETTLE_S)
            self.checkers.check_end()
            self.world.run_for(0.001)

    @contextmanager
    def staged(self) -> Iterator[None]:
        """The installation is made; nothing else happens by itself."""
        with (
            self.world,
            _reported(self.world, self.trace),
            _tokens_watched(self),
            _discards_watched(self),
            patch.object(app, "Members", self._members),
            _rates_of_tenants_watched(self),
            _tuned(self.plan),
        ):
            installer = self.world.spawn("setup", self._setup)
            self.world.run(lambda: not installer.alive, SETUP_S)
            yield

    def _members(self, *args: Any, **settings: Any) -> Members:
        """The membership of a node, perhaps one of an older version."""
        members = Members(*args, **settings)
        members.placement = self.placement()
        return members

    def _calm(self) -> None:
        self.network.calm()
        self.receivers.calm()
        self.process_faults.calm()
        self.workload.calm()
        self.fanout_producer.calm()

    def settle(self, limit_s: float, check_every_s: float) -> None:
        """Until everything is settled. Raises `RunFailed`, which says what is not."""
        self._check_until_quiet(limit_s, check_every_s, "never settled", self.checkers.unsettled)

    def _check_until_quiet(
        self, limit_s: float, check_every_s: float, otherwise: str, check: Callable[[], str]
    ) -> None:
        """Until `check` says nothing more. Raises `RunFailed`, with what it says."""
        world = self.world
        checked_at, left = 0.0, "not checked yet"

        def is_quiet() -> bool:
            nonlocal checked_at, left
            if world.now >= checked_at:
                checked_at, left = world.now + check_every_s, check()
            return not left

        try:
            world.run(is_quiet, limit_s)
        except (Deadlock, LimitReached) as failed:
            raise type(failed)(f"seed {world.seed}: {otherwise}: {left}\n{failed}") from failed

    def until_placed(self, limit_s: float) -> None:
        """Until each shard is owned by the node that should own it. Raises `RunFailed`."""
        self._check_until_quiet(
            limit_s, PLACED_CHECK_EVERY_S, "never shared out",
            lambda: misplaced(self.checkers.nodes, self.plan.shards),
        )  # fmt: skip


def _settings_of_tenants(plan: Plan) -> dict[str, TenantSettings]:
    """The settings of acme, of the tenants that have the rate of the plan, and of all others."""
    rate = Rate(limit=plan.rate, per="second") if plan.rate else None
    quota = plan.quota or None
    limited = TenantSettings(rate=rate, backlog_max_bytes=quota)
    return {
        "*": TenantSettings(backlog_max_bytes=quota),
        "acme": TenantSettings(rate=rate, weight=plan.weight, backlog_max_bytes=quota),
    } | dict.fromkeys(plan.limited, limited)


@contextmanager
def _reported(world: World, trace: bool) -> Iterator[None]:
    root, handler = logging.getLogger(), Reporter(world)
    before, level = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if trace else logging.ERROR)
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)


@contextmanager
def _tuned(plan: Plan) -> Iterator[None]:
    """Sets how often snapshots are written and streams purged, and how soon an actor leaves memory."""
    with ExitStack() as stack:
        for owner, name, value in (
            (follower, "READ_MESSAGES_MAX", plan.configurations_read),
            (shard_snapshots, "SNAPSHOT_EVERY_S", plan.snapshot_every_s),
            (host, "PASSIVATE_AFTER_S", plan.idle_s),
            (flow_control, "UNSETTLED_PAUSE_AT", plan.pause_at),
            (maintenance, "ROUND_EVERY_S", plan.maintenance_every_s),
            (maintenance, "HURRIED_ROUND_EVERY_S", plan.maintenance_every_s),
            (maintenance, "JOURNAL_LAG_MAX", 2),
            (maintenance, "DEPOSED_LEADER_MAX_S", max(plan.maintenance_every_s, plan.faults.deposed_s)),
            (purge, "JOURNAL_SHARE", 0.0),
            (snapshots, "BATCH_MESSAGES_MAX", plan.batch),
            (parked_receivers, "PART_BYTES", plan.part_bytes),
            (tenants, "EVENTS_MAX", plan.tenant_events),
            (tenants, "UNCONFIRMED_COPIES_MAX", plan.tenant_copies),
            (tenants, "PARKED_MAX", plan.tenants_parked),
            (receiver_selection, "STEPS_A_TURN", plan.filter_steps),
            (router, "WAITING_MAX_S", plan.waiting_s),
            (router, "PULL_BATCH", plan.pull_batch),
            (router, "EVENT_BYTES_MAX", plan.event_bytes),
            (pull_room, "REQUEST_BYTES_MAX", plan.request_bytes),
            (ahead_reader, "BEHIND_MIN", plan.behind),
        ):
            stack.enter_context(patch.object(owner, name, value))
        yield


@contextmanager
def _tokens_watched(run: Run) -> Iterator[None]:
    """Watches the product: when an attempt starts with its token, since promise 4 counts there."""
    next_step = vars(actor)["next_step"]

    def watched(state: State, policy: Policy | None, view: View, now: float) -> Step:
        step: Step = next_step(state, policy, view, now)
        process = run.world.stepping
        if isinstance(step, Post | PostBatch) and process is not None:
            first = step.event if isinstance(step, Post) else step.events[0]
            run.checkers.token_taken(process, first.position)
        return step

    with patch.object(actor, "next_step", watched):
        yield


@contextmanager
def _rates_of_tenants_watched(run: Run) -> Iterator[None]:
    """Watches the product: when a router takes an event, since the rate of its tenant counts there."""
    next_to_match = Tenants.next_to_match

    def watched(tenants: Tenants[Any], now: float) -> Any:
        event = next_to_match(tenants, now)
        if event is not None and event.position > tenants.by_name[event.tenant].waived_to:
            run.checkers.rates_of_tenants.taken(tenants, event.tenant, run.world.now)
        return event

    with patch.object(Tenants, "next_to_match", watched):
        yield


@contextmanager
def _discards_watched(run: Run) -> Iterator[None]:
    """Watches the product: what is found to be discarded, since replicas differ about what was deleted."""
    read, is_duplicate = discard.read_discarded, vars(discard)["is_duplicate"]
    reading: ContextVar[set[int]] = ContextVar("reading")

    async def watched_read(of: Actor, frontier: Frontier, to: int) -> DiscardedEvents:
        process, found = run.world.stepping, set[int]()
        reading.set(found)
        passed: DiscardedEvents = await read(of, frontier, to)
        if process is not None and of.state.frontier is frontier:  # Else it is read again.
            run.checkers.deliveries.discarded[process.name, of.receiver, frontier.position] = found
        return passed

    def watched_judgement(frontier: Frontier, event: Event) -> bool:
        reading.get().add(event.position)
        return bool(is_duplicate(frontier, event))

    with patch.multiple(discard, read_discarded=watched_read, is_duplicate=watched_judgement):
        yield
