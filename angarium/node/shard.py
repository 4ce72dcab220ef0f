"""One shard under this node: claimed, recovered, run, and handed over or lost.

This is where the two lower packages meet: the host of the actors (which decides) is connected to the journal,
the inbox and the snapshots of the shard (which remember). When the ownership ends, everything that belongs to
it ends; the next one begins with a claim.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from actors.ids import event_id
from actors.machine.event import Event
from actors.memory.unacked import NodeHolders
from actors.ports import NoDownHosts, NoOutage, Sender
from actors.runtime.environment import HostPorts, ShardClaim
from actors.runtime.host import Host
from angarium.delivery.connections.down_hosts import DownHosts
from angarium.delivery.own_outage.outage_detector import OutageDetector
from angarium.node.health_log import HealthLog
from angarium.node.shard_snapshots import ShardSnapshots
from angarium.node.totals import NodeTotals
from angarium.rate_limited_log import RateLimitedLog
from angarium.telemetry.open_tracing import Tracing
from streams.alert_events import AlertWriter
from streams.buckets.known_configurations import KnownConfigurations
from streams.clock import Timekeeper
from streams.dead_letters.bury import DeadLetterWriter
from streams.fleet.lease import Lease
from streams.fleet.members import FactKinds, Members
from streams.installation.partitions import shard_of_receiver
from streams.installation.topology import JOURNAL_AGE_S, MAX_ACK_PENDING, Names
from streams.journal.claim import Claim, NotOwned, claim, release
from streams.journal.journal import Journal, JournalEntry
from streams.journal.load_slots import LoadSlots
from streams.journal.recovery import Recovery, recover
from streams.journal.routing_progress import RoutingProgress
from streams.journal.snapshots import Snapshots
from streams.lost_tails.comparison import Loss, find_loss
from streams.lost_tails.marks import Mark, Marks
from streams.nats.jetstream import JetStream
from streams.reading.backlog import Backlog
from streams.reading.inbox import Inbox
from streams.reading.pull_room import PullRoom
from streams.reading.reader import ReadingTerms
from streams.routing.node_routing import Routing
from streams.routing.router import Router
from streams.tasks import on_defect

log = logging.getLogger(__name__)


class NodeContext(Struct, frozen=True):
    """Objects that all shards of a node share."""

    js: JetStream
    names: Names
    node: str
    time: Timekeeper
    members: Members
    configurations: KnownConfigurations
    sender: Sender
    readers: asyncio.Semaphore
    pull_room: PullRoom
    loads: LoadSlots
    burials_at_once: asyncio.Semaphore
    routing: Routing
    totals: NodeTotals
    health_log: HealthLog
    saturated: Callable[[], bool]
    holders: NodeHolders
    drain_s: float
    replay_keep_s: float
    tracing: Tracing | None = None
    metrics_names: int = 0
    proxy_connections: Callable[[], Mapping[str, int]] = dict
    outage: OutageDetector | None = None
    down_hosts: DownHosts | None = None

    @property
    def has_outage(self) -> bool:
        """True while this node can connect to no host."""
        return self.outage is not None and self.outage.since is not None


class OwnershipClock:
    """Wall time at the claim plus monotonic time since, so that steps of the wall clock do not matter."""

    def __init__(self, claimed: Claim, time: Timekeeper) -> None:
        self._offset = claimed.at - claimed.boottime
        self._boottime = time.boottime

    def now(self) -> float:
        return self._boottime() + self._offset


class Shard:
    """The ownership of one shard, from its claim on. `ended` is set when it is over, for any reason.

    An expired lease only suspends it: if no other node has owned the shard when it is claimed again, it goes
    on from memory, so that a restart of NATS repeats no delivery.
    """

    def __init__(
        self, shard: int, context: NodeContext, lease: Lease, claimed: Claim, recovery: Recovery
    ) -> None:
        self.number = shard
        self._started = False
        self.ended = asyncio.Event()
        self.why = ""
        self.refused = False
        self.loss: Loss | None = None
        self.claim = claimed
        self._context = context
        self._recovery = recovery
        self._lease = lease
        js, names = context.js, context.names
        self.journal = Journal(
            js, names, claimed, context.node, self, time=context.time, retention_s=JOURNAL_AGE_S,
            totals=context.totals.journal,
        )  # fmt: skip
        stored = Snapshots(js, names, claimed, context.loads)
        self._backlog = Backlog(js, names, shard, context.readers, replicated=claimed.replicated)
        self._handing_over = asyncio.Lock()
        self._handed_over = False
        self.host = self._new_host(stored)
        self.snapshots = ShardSnapshots(self, stored, recovery, js, context.configurations)
        self._marks = claimed.marks
        self._inbox = self._new_inbox()
        self._router = self._new_router()
        self._keeper: asyncio.Task[None] | None = None
        self._warn_misaddressed = RateLimitedLog(log, "event.misaddressed")

    def _new_host(self, snapshots: Snapshots) -> Host:
        context, claimed = self._context, self.claim
        claim = ShardClaim(
            epoch=claimed.epoch, at=claimed.at, position=claimed.position, unclean=claimed.unclean,
            floor=self._recovery.floor, needed=self._recovery.checkpoint.needed,
        )  # fmt: skip
        ports = HostPorts(
            clock=OwnershipClock(claimed, context.time), recorder=self.journal, sender=context.sender,
            backlog=self._backlog,
            dead_letters=DeadLetterWriter(
                context.js, context.names, context.burials_at_once, lambda: self._lease.is_valid()
            ),
            snapshots=snapshots, policies=context.configurations, totals=context.totals.actors,
            within_lease=self._lease.is_valid, ack=self._ack, set_pulling_paused=self._set_pulling_paused,
            saturated=context.saturated, refuse=self.refuse, on_health_change=context.health_log,
            on_alert=context.health_log.alert, alerts=AlertWriter(context.js, context.names),
            alert_limits=context.routing.tenant_settings.alert_limits,
            outage=context.outage or NoOutage(), down_hosts=context.down_hosts or NoDownHosts(),
            may_record_alerts=lambda: context.members.all_know_facts(FactKinds.ALERTS),
            all_know_handshakes=lambda: context.members.all_know_facts(FactKinds.HANDSHAKES),
            all_know_transforms=lambda: context.members.all_know_facts(FactKinds.TRANSFORMS),
            all_know_paces=lambda: context.members.all_know_facts(FactKinds.PACES),
            all_know_offline_pings=lambda: context.members.all_know_facts(FactKinds.OFFLINE_PINGS),
            node_holders=context.holders,
        )  # fmt: skip
        return Host(claim, ports, unacked_max=MAX_ACK_PENDING)

    async def start(self) -> None:
        """Begin with the actors that the journal names, then read the work."""
        self.journal.start()
        self.host.start(self._recovery.states, self._recovery.parked)
        self._keeper = asyncio.get_running_loop().create_task(self.snapshots.write_regularly())
        self._keeper.add_done_callback(on_defect("snapshots", self._end))
        await self._inbox.start()
        await self._router.start()
        self._started = True

    @property
    def delivers(self) -> bool:
        """True from its start until it is handed over, suspended or ended."""
        return self._started and not (self.host.draining or self.is_suspended or self.ended.is_set())

    def _new_inbox(self) -> Inbox:
        return Inbox(
            self._context.js, self._context.names, self.number, self.claim.epoch,
            self._reading_terms(self._context.names.deliveries),
            on_event=self.host.arrive, on_malformed=self._misaddressed, floor=lambda: self.journal.floor,
            known_mark=self._known_mark, joinable=lambda: self.host.shard_unacked.joinable_count,
        )  # fmt: skip

    def _reading_terms(self, stream: str) -> ReadingTerms:
        return ReadingTerms(
            may_read=self.host.within_lease, on_broken=self._end, on_lost=self._lost,
            created=self._recovery.created[stream], room=self._context.pull_room,
        )  # fmt: skip

    def _new_router(self) -> Router:
        """The router of the partition with the same number. It remembers nothing of an earlier ownership."""
        return Router(
            self._context.js, self._context.names, self.number, self._context.routing,
            self._reading_terms(self._context.names.events),
            epoch=self.claim.epoch, recorded=lambda: self.journal.routing,
            on_progress=self.journal.routing_moved, known_marks=self._marks, replicated=self.claim.replicated,
        )  # fmt: skip

    def _misaddressed(self, receiver: str, position: int, why: str) -> None:
        """Pass on an event with an impossible receiver name, which is treated like any unknown one."""
        self._warn_misaddressed(position=position, why=why)
        now = self.host.clock.now()
        event = Event(
            position=position, id=event_id(None, position, now), stored_at=now, body=b"", malformed=why
        )
        self.host.arrive(receiver, event)

    def _ack(self, position: int) -> None:
        self._inbox.ack(position)

    def _set_pulling_paused(self, paused: bool) -> None:
        self._inbox.set_pulling_paused(paused)

    def evict_unrouted(self, tenant: str, below: int) -> None:
        """Make the events of a tenant ("": of all) that wait to be routed below a position dead letters."""
        self._router.evict_unrouted(tenant, below)

    # ---- the journal's listener

    def floor_for_flush(self, index: int) -> int:
        """The floor at this cut, after the facts up to `index`; remembered until the flush is confirmed."""
        return self.host.floor_for_flush(index)

    def routing(self) -> RoutingProgress:
        """The progress of routing."""
        return self._router.progress

    def unread(self) -> dict[str, int]:
        """The number of messages that wait to be read, by their stream."""
        return {"deliveries": self._inbox.unread, "events": self._router.unread}

    def marks(self) -> Marks:
        """The highest messages that were ever read from the streams, or known before."""
        self._marks = self._marks.raised(Marks(deliveries=self._inbox.mark, events=self._router.mark))
        return self._marks

    def _known_mark(self) -> Mark:
        """The highest delivery that is known from other sources than the inbox."""
        read = self._backlog.mark
        # A backlog that is read after a restart of the server may already belong to a new tail.
        if read.position > self._marks.deliveries.position and self._inbox.is_compared:
            self._marks = self._marks.raised(Marks(deliveries=read))
        return self._marks.deliveries

    def flush_confirmed(self, entries: Sequence[JournalEntry], position: int) -> None:
        """Take these facts as confirmed by the journal."""
        self.host.confirm(entries)
        self._router.ack(self.journal.routing.routed)
        if self._context.tracing is not None:
            self._context.tracing.tracer.export(entries)

    def ownership_lost(self, why: str) -> None:
        """Stop at once and ack nothing more, since another node owns the shard."""
        self._context.totals.ownership.fenced += 1
        self._end(f"fenced: {why}")

    # ---- a lease that lapsed

    @property
    def created(self) -> dict[str, str]:
        """When each stream and bucket was created from which the shard was recovered."""
        return self._recovery.created

    @property
    def is_suspended(self) -> bool:
        """True if the lease of the claim has expired, even if a new one is in force."""
        return self._lease.is_over or self._lease is not self._context.members.lease

    async def suspend(self) -> None:
        """Suspend the shard after its lease expired: append nothing, read nothing, and keep the memory."""
        await self.journal.suspend()
        await self._router.stop()
        await self._inbox.stop()

    async def resume(self, lease: Lease, claimed: Claim) -> bool:
        """Continue from memory under a new claim; False if that is not possible.

        Another node owned the shard in between, or the streams are not those of this memory.
        Raises `ApiError` if one does not exist.
        """
        host, context = self.host, self._context
        if self.ended.is_set() or not self.journal.is_before(claimed):
            return False  # Also after a repair: this memory belongs to the old streams.
        loss = await self._find_loss()  # The claim has compared only the recorded marks.
        if self.ended.is_set():
            return False
        self.claim, self._lease = claimed, lease
        if loss is not None:
            self._lost(loss)
            return False
        if not self.journal.reclaim(claimed):
            return False
        self._marks = self.marks().raised(claimed.marks)
        host.snapshots = Snapshots(context.js, context.names, claimed, context.loads)
        self.snapshots.continue_with(host.snapshots)
        host.continue_under(claimed.epoch, lease.is_valid)
        self._inbox, self._router = self._new_inbox(), self._new_router()
        await self._inbox.start()
        await self._router.start()
        host.residents.wake_all()
        return True

    async def _find_loss(self) -> Loss | None:
        """Compare what memory knows with the streams."""
        marks, names = self.marks(), self._context.names
        for stream, mark in ((names.deliveries, marks.deliveries), (names.events, marks.events)):
            if (loss := await find_loss(self._context.js, stream, mark)) is not None:
                return loss
        return None

    # ---- the end

    def refuse(self, why: str) -> None:
        """Refuse the shard as it is. The reason may appear late, since snapshots are read when needed."""
        self.refused = True
        self._end(why)

    def _lost(self, loss: Loss) -> None:
        """End the shard, since messages that it has read are gone. Dropping the shard records that."""
        self.loss = loss
        self.refuse(loss.why)

    def _end(self, why: str) -> None:
        if not self.ended.is_set():
            self.why = why
            self.host.stop()
            self.ended.set()

    async def stop(self, why: str) -> None:
        """End without a handover: nothing more is started, recorded or acked."""
        self._end(why)
        if self._keeper is not None:
            self._keeper.cancel()
        await self._router.stop()
        await self._inbox.stop()
        await self.journal.stop()
        if self._context.tracing is not None:
            self._context.tracing.tracer.forget_receivers(self._owned)

    def _owned(self, receiver: str) -> bool:
        """True if the receiver belongs to this shard."""
        return shard_of_receiver(receiver, self._context.routing.partitions) == self.number

    async def hand_over(self, drain_s: float) -> bool:
        """Hand the shard over after the attempts in flight, with everything recorded, acked and released.

        These attempts get `drain_s`.
        Returns False if the shard ended in another way, given by `why`: then the attempts in flight may be
        repeated. A second caller waits for the first.
        """
        async with self._handing_over:
            if self.ended.is_set():
                await self.stop(self.why)
            else:
                await self._hand_over(drain_s)
        return self._handed_over

    async def _hand_over(self, drain_s: float) -> None:
        context, host = self._context, self.host
        await self._router.stop()
        await host.drain(drain_s)
        recorded = not self.is_suspended and await self.journal.drain(context.drain_s)
        if self.ended.is_set() or not recorded or host.in_flight:
            late = f"{host.in_flight} in flight" if host.in_flight else "not everything recorded"
            await self.stop(
                "the lease expired" if self.is_suspended else f"{late} after drain_s ({context.drain_s:g} s)"
            )
            return
        host.acknowledge()
        await self.snapshots.write()
        if not self.ended.is_set():
            await self.stop("handed over")
            self._handed_over = await release(context.js, context.names, self.claim, context.node)
            if not self._handed_over:
                self.why = "its release was not recorded"


async def take_over(shard: int, context: NodeContext) -> Shard | NotOwned:
    """Claim a shard and bring its actors back. Raises the errors of recovery if a stream was recreated."""
    lease = context.members.lease  # Read before the claim: under a later lease, others may have claimed.
    if not lease.is_valid():
        return NotOwned("no lease is in force")  # A claim would name a heartbeat of the lease before.
    claimed = await claim(
        context.js, context.names, shard, context.node, context.time,
        may_claim=context.members.may_claim, run=context.members.run, heartbeat=context.members.stored,
    )  # fmt: skip
    if isinstance(claimed, NotOwned):
        return claimed
    recovery = await recover(context.js, context.names, claimed, context.node, context.loads)
    return recovery if isinstance(recovery, NotOwned) else Shard(shard, context, lease, claimed, recovery)
