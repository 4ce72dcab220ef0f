"""The members of the fleet: which nodes are alive, which should own what, and which may be taken over.

Each node renews its key every third of the TTL, which also renews its lease. Just as often it reads the
keys of the others. Messages in between are only a hint to read sooner; they also give the time at which a
heartbeat came (`last_messages`). A node that shows no new heartbeat for the TTL plus half a second, *by our
clock*, counts as dead. An expired key proves nothing: a restart of NATS, or a server's fast clock, can expire
the key of a live node. That time begins again with each connection, before a shard may be claimed; but a node
that was dead gets no share until it shows a new heartbeat.

A restart of NATS may also bring back the last heartbeat of a node that died long ago. A heartbeat proves life
only if it is not certainly older than a TTL, by the revisions of our own.

A read of the keys is as old as our own last heartbeat in it, and counts only if it contains that heartbeat: a
deposed leader that still answers does not have it. A claim is a sign of life, too: it names a heartbeat that
our last read may have missed (`signs_of_life`, docs/decisions/claims-and-heartbeats.md).
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from actors.errors import Unavailable
from streams.clock import Timekeeper
from streams.fleet.last_messages import LastMessages
from streams.fleet.lease import LEASE_MARGIN_S, Lease
from streams.fleet.own_heartbeats import ALL_NODES, OwnHeartbeats, StoredHeartbeat, read_heartbeats
from streams.fleet.placement import PLACEMENT_VERSION, LiveNode, wanted_shards
from streams.fleet.process_runs import UNSUPERVISED, ProcessRuns
from streams.fleet.signs_of_life import SignOfLife, SignsOfLife
from streams.installation.topology import Names
from streams.journal.claim import Owner
from streams.nats.answers import Refused, Stored, StoredMessage
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses, ReasonLog, retry_until_answered
from streams.nats.wire import Message, Subscription
from streams.nats.wire_names import KV_DELETED, KV_OPERATION, TTL
from streams.tasks import cancel_and_wait, reporting
from streams.versions import UNREADABLE

VERSION = 1
RENEWALS_PER_TTL = 3
"""Renewals in one TTL, so that two may fail."""
RENEWAL_TIMEOUT_S = 2.0
READ_PAUSE_MIN_S = 0.01
BELIEVED_TTL_MAX_S = 600.0
"""The longest TTL of another node that is believed; settings allow a tenth. Shards wait for it to be over."""
YEAR_5138 = 1e11
"""A time later than any start; beyond, it is no date that can be shown."""

log = logging.getLogger(__name__)


class FactKinds(IntEnum):
    """Kinds of facts that older versions do not know, in the order in which versions learned them."""

    ALERTS = 1
    HANDSHAKES = 2
    TRANSFORMS = 3
    PACES = 4
    OFFLINE_PINGS = 5


FACTS_KNOWN = max(FactKinds)


class Member(Struct, frozen=True, kw_only=True):
    """A node as it describes itself in its key.

    - `started_at`: by its wall clock.
    - `heartbeat`: number of its renewals.
    - `ttl_s`: how long each renewal is valid; 0 if unknown.
    - `run`: a random id of the process, so that two with the same name differ.
    - `placement`: the newest that it knows; `draining`: it is being emptied, or is empty (`placement`).
    - `owned`: the shards that it runs; older versions leave it empty.
    - `facts`: the newest of the `FactKinds` that it knows.
    - `outage`: it can connect to no host.
    """

    v: int = VERSION
    node: str
    started_at: Annotated[float, Meta(ge=0, le=YEAR_5138)]
    version: str
    heartbeat: int
    ttl_s: Annotated[float, Meta(le=BELIEVED_TTL_MAX_S)] = 0.0
    run: str = ""
    placement: int = 0
    draining: bool = False
    owned: tuple[int, ...] = ()
    facts: int = 0
    outage: bool = False


_member = msgspec.json.Decoder(Member)


class Members:
    """This node's membership, and its view of the others.

    A node's name belongs to one process at a time, and to another process after each start. Their claims are
    distinguished by `run`, which is drawn at the start, never by their wall clocks.

    - `lease`: the one in force. A caller takes it *before* it claims, and keeps it: after a lapse there is
      another one, and claims under the old one can do nothing any more.
    - `live_nodes`: the nodes among which the shards are shared out, by name, this node always among them.
    - `draining`: this node is being emptied, or is empty, until it is resumed or started again.
    - `placement`: the newest that this node knows.
    - `signs`: the last signs of life that we have seen.
    - `heartbeat`: the number of our last renewal, stored or not; `stored`: of the last that is stored.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        node: str,
        time: Timekeeper,
        *,
        ttl_s: float,
        version: str,
        runs: ProcessRuns = UNSUPERVISED,
    ) -> None:
        self.node = node
        self.lease = Lease(ttl_s, time)
        self.draining = False
        self.placement = PLACEMENT_VERSION
        self.live_nodes: tuple[LiveNode, ...] = (LiveNode(node, PLACEMENT_VERSION),)
        self._js = js
        self._names = names
        self._time = time
        self._ttl_s = ttl_s
        self._version = version
        self.run = runs.own or js.wire.new_inbox().partition(".")[2]
        self._ended_runs = frozenset(runs.ended)
        self.heartbeat = self.stored = 0
        self._own = OwnHeartbeats()
        self._unstored = ReasonLog(js, log, "heartbeat.unstored", node=node)
        self.signs = SignsOfLife(node, self.run, ttl_s)
        self._differing: set[str] = set()
        self._hint = asyncio.Event()
        self._on_change: list[Callable[[], None]] = []
        self._on_lapse: list[Callable[[], None]] = []
        self._on_lease: list[Callable[[], None]] = []
        self._on_others: list[Callable[[], None]] = []
        self._renew_now = asyncio.Event()
        self._last_messages = LastMessages()
        self.owned: Callable[[], Iterable[int]] = tuple
        self.has_outage: Callable[[], bool] = bool
        self._subscription: Subscription | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when `live_nodes` changes."""
        self._on_change.append(listener)

    def on_lapse(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the lease is over. It stops every shard before it returns."""
        self._on_lapse.append(listener)

    def on_lease(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a lease comes into force."""
        self._on_lease.append(listener)

    def on_others(self, listener: Callable[[], None]) -> None:
        """Call `listener` with each heartbeat of another node: shards may have changed hands."""
        self._on_others.append(listener)

    def renew_soon(self) -> None:
        """Send a heartbeat soon, so that the others look which shards changed hands."""
        self._renew_now.set()

    async def start(self) -> None:
        """Become a member; returns when the first heartbeat is stored and the others are known."""
        self._started_at, self._started_boottime = self._time.wall(), self._time.boottime()
        self._js.add_listener(self.connection_changed)
        self._subscription = await self._js.wire.subscribe(
            self._names.node(ALL_NODES), self._on_heartbeat, headers=False
        )
        pauses = Pauses(self._js)
        while not await self._renew():
            await pauses.wait()
            if self.lease.is_over:
                self.lapse()
        await retry_until_answered(self._read_heartbeats)
        self._tasks = [
            asyncio.ensure_future(self._keep_renewing()),
            asyncio.ensure_future(self._keep_reading()),
        ]
        for task in self._tasks:
            task.add_done_callback(reporting("the membership of this node broke"))

    async def leave(self) -> None:
        """Announce that this node leaves, after its shards are released. A second call does nothing."""
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        self._js.remove_listener(self.connection_changed)
        await subscription.unsubscribe()
        await cancel_and_wait(*self._tasks)
        await self._js.publish(self._names.node(self.node), b"", KV_DELETED | self._expiry())

    # ---- who owns, and who may

    @property
    def live(self) -> tuple[str, ...]:
        """The names of the live nodes."""
        return tuple(each.name for each in self.live_nodes)

    def wanted_shards(self, shards: int) -> list[int]:
        """The shards that this node should own."""
        return wanted_shards(shards, self.node, self.live_nodes)

    async def set_draining(self, draining: bool) -> bool:
        """Announce that this node should get no shards, or should again; True once that is stored.

        If it is not stored, the next heartbeats say it.
        """
        self.draining = draining
        stored = await self._renew()
        self._update_live([each for each in self.live_nodes if each.name != self.node])
        return stored

    def owned_elsewhere(self) -> frozenset[int]:
        """The shards that other nodes run, by the last heartbeat of each that came: it may be out of date."""
        return self._last_messages.owned()

    def may_claim(self, owner: Owner | None) -> bool:
        """True if a shard of this owner may be claimed: free, ours, or its holder is silent or has ended."""
        if owner is None or owner.released is not None or (owner.node, owner.run) == (self.node, self.run):
            return True
        if owner.run:
            if owner.node == self.node and owner.run in self._ended_runs:
                return True
            # This also holds for our own name: that process may be asleep and believe that it is the owner.
            return self.signs.is_silent(self.signs.note_claim(owner, self._time.boottime()))
        if owner.node != self.node:
            return self.is_node_silent(owner.node)
        return self._time.boottime() - self._started_boottime >= self._ttl_s + LEASE_MARGIN_S

    def is_node_silent(self, node: str) -> bool:
        """True if the node counts as dead; see `SignsOfLife.is_node_silent`."""
        return self.signs.is_node_silent(node, self._time.boottime())

    # ---- showing ourselves

    async def _keep_renewing(self) -> None:
        pauses = Pauses(self._js)
        while True:
            if self.lease.is_over:
                self.lapse()
            self._renew_now.clear()
            if await self._renew():
                pauses = Pauses(self._js)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._ttl_s / RENEWALS_PER_TTL):
                        await self._renew_now.wait()
            else:
                await pauses.wait()

    def lapse(self) -> None:
        """Stop all shards before a renewal if the lease is over: the renewal must not revive it."""
        reason_log = ReasonLog(self._js, log, "lease.lapsed", node=self.node)
        reason_log.log_once(f"no heartbeat was stored for {self._ttl_s - LEASE_MARGIN_S:g} s")
        for listener in self._on_lapse:
            listener()
        self.lease = Lease(self._ttl_s, self._time)

    async def _renew(self) -> bool:
        lease = self.lease
        sent_at = lease.sending()
        self.heartbeat += 1
        member = Member(
            node=self.node, started_at=self._started_at, version=self._version, heartbeat=self.heartbeat,
            ttl_s=self._ttl_s, run=self.run, placement=self.placement, draining=self.draining,
            owned=tuple(self.owned()), facts=FACTS_KNOWN, outage=self.has_outage(),
        )  # fmt: skip
        number = self.heartbeat
        answer = await self._js.publish(
            self._names.node(self.node),
            msgspec.json.encode(member),
            self._expiry(),
            min(RENEWAL_TIMEOUT_S, self._ttl_s / RENEWALS_PER_TTL),
        )
        if isinstance(answer, Stored):
            self._unstored.clear()
            self._own.add(StoredHeartbeat(answer.position, sent_at, self._time.boottime()))
            self.stored = number
            return self._acknowledged(lease, sent_at)
        self._unstored.log_once(answer.text if isinstance(answer, Refused) else answer.why)
        return False

    def _acknowledged(self, lease: Lease, sent_at: float) -> bool:
        begins = not lease.is_valid()
        if not lease.acknowledged(sent_at):
            return False
        if begins:
            for listener in self._on_lease:
                listener()
        return True

    def _expiry(self) -> dict[str, str]:
        """The header for the lifetime of a key that is not renewed; the server accepts whole seconds."""
        return {TTL: f"{math.ceil(self._ttl_s)}s"}

    # ---- reading the keys of the others

    async def _keep_reading(self) -> None:
        wait_s = self._until_next_read_s()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._hint.wait()
            self._hint.clear()
            try:
                # A read says nothing about the time after our own last heartbeat.
                is_due = self._own.last.sent_at < self.signs.next_silent_from() <= self._time.boottime()
                stored = not is_due or await self._renew()
                await self._read_heartbeats()
                # A node that is overdue is judged only once our own heartbeats are stored again.
                wait_s = self._until_next_read_s() if stored else self._ttl_s / RENEWALS_PER_TTL
            except (Unavailable, ApiError) as error:  # The bucket may be gone, and be recreated.
                log.debug("members.unseen", extra={"why": str(error)})
                wait_s = self._ttl_s / RENEWALS_PER_TTL

    def _until_next_read_s(self) -> float:
        """A third of the TTL, or less if another node would count as dead sooner, or does so by now."""
        due_in = self.signs.next_silent_from() - self._time.boottime()
        return max(READ_PAUSE_MIN_S, min(self._ttl_s / RENEWALS_PER_TTL, due_in))

    async def _read_heartbeats(self) -> None:
        """Read the bucket. Each heartbeat changes the key's revision, so none is missed."""
        page, as_of = await read_heartbeats(self._js, self._names, lambda: self._own.last)
        present: dict[str, bool] = {}
        for message in page.messages:
            node = self._names.node_of_heartbeat(message.subject)
            if message.data:
                present[node] = self._record_heartbeat(node, message)
            elif KV_OPERATION in message.headers:
                self.signs.note_departure(node)
        self.signs.end_read(present, as_of, self._time.boottime())
        shown = {node for node, is_new in present.items() if is_new}
        self._update_live([
            LiveNode(each, seen.placement, seen.draining) for each, seen in self.signs.others
            if self.is_live(each, shown)
        ])  # fmt: skip

    def all_know_facts(self, known: int) -> bool:
        """True if all live nodes know these kinds of facts; else another owner might not read them."""
        return all(seen.facts >= known for node, seen in self.signs.others if node in self.live)

    def _update_live(self, others: Collection[LiveNode]) -> None:
        live = tuple(sorted([LiveNode(self.node, self.placement, self.draining), *others]))
        if live != self.live_nodes:
            self.live_nodes = live
            self._last_messages.keep(self.live)
            for listener in self._on_change:
                listener()

    def _record_heartbeat(self, node: str, message: StoredMessage) -> bool:
        """Record the heartbeat; True if it is new to us, and not certainly older than a TTL."""
        if self.signs.is_known(node, message.position):
            return False
        now = self._time.boottime()
        member = self._member(node, message.data)
        if self._own.is_older(message.position, now - max(self._ttl_s, member.ttl_s) - LEASE_MARGIN_S):
            return False
        since = self._last_messages.came_at(node, member.run, member.heartbeat, now)
        seen = SignOfLife(
            message.position,
            since,
            member.ttl_s,
            member.heartbeat,
            member.placement,
            member.draining,
            member.facts,
        )
        self.signs.note_heartbeat(node, member.run, seen)
        return True

    def _member(self, node: str, data: bytes) -> Member:
        """The node as it describes itself. If that cannot be read, our own TTL is assumed."""
        try:
            member = _member.decode(data)
        except UNREADABLE:
            return Member(node=node, started_at=0.0, version="", heartbeat=0)
        if member.ttl_s not in (0.0, self._ttl_s) and node not in self._differing:
            self._differing.add(node)
            difference = {"other": node, "ttl_s": member.ttl_s, "ours_s": self._ttl_s}
            log.warning("members.ttl_differs", extra=difference)
        if node == self.node and member.run != self.run and member.run not in self._differing:
            self._differing.add(member.run)
            log.warning("members.name_taken", extra={
                "node": node, "run": member.run, "ours": self.run, "remedy": "a shard is owned by one of the "
                "two, and the other waits until that one ends: give each node a name of its own (--node)",
            })  # fmt: skip
        return member

    def is_live(self, node: str, shown: Collection[str]) -> bool:
        """True if the node should own shards: from a heartbeat that is new to us until it is silent.

        A node that was silent is not live again because its time begins again, as it does with a connection:
        that is a reason to wait with claims, and none to hand shards to a node that died long ago.
        `shown`: the nodes with a new heartbeat in this read.
        """
        return (node in self.live or node in shown) and not self.is_node_silent(node)

    def _on_heartbeat(self, message: Message) -> None:
        """Read the keys at once if a node is new, was silent, leaves, or begins to drain."""
        node = self._names.node_of_heartbeat(message.subject)
        if node not in self.live or not message.data:
            self._last_messages.drop(node)
            self._hint.set()
            return
        member = self._member(node, message.data)
        if not self._is_shown(node, member.run):
            seen = SignOfLife(None, self._time.boottime(), member.ttl_s, member.heartbeat)
            self.signs.note_process(node, member.run, seen)
        if node == self.node:
            return
        self._last_messages.add(node, member.run, member.heartbeat, self._time.boottime(), member.owned)
        for listener in self._on_others:
            listener()
        if LiveNode(node, member.placement, member.draining) not in self.live_nodes:
            self._hint.set()

    def _is_shown(self, node: str, run: str) -> bool:
        """True if the bucket has a heartbeat of this process: the last that stored one under its name."""
        return run == self.run if node == self.node else self.signs.is_last(node, run)

    def connection_changed(self, connected: bool) -> None:
        if connected:
            self.signs.connected(self._time.boottime())
            self._hint.set()
