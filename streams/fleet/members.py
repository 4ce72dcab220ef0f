"""The members of the fleet: which nodes are alive, which should own what, and which may be taken over.

Each node renews its key every third of the TTL, which also renews its lease. Just as often it looks at the
others; messages in between are only a hint to look sooner, and tell when a heartbeat came that a later look
shows (`heard`). A node that shows no new heartbeat for the TTL plus half a second, *by our clock*, counts as
dead. An expired key proves nothing: a restart of NATS, or a
server's fast clock, can expire the key of a live node. That time begins again with each connection, before a
shard may be claimed; but a node that was dead gets no share until it shows a new heartbeat.

A restart of NATS may also bring back the last heartbeat of a node that died long ago. A heartbeat proves life
only if it is not certainly older than a TTL, by the revisions of our own.

A look counts as of the moment at which we sent our own last heartbeat, and only if it shows that heartbeat: a
leader that was deposed, and answers all the same, knows none that is newer. And a claim is a sign of life: it
names the heartbeat under which it was made, which our last look may not have seen yet
(docs/decisions/claims-and-heartbeats.md).
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.errors import Unavailable
from streams.clock import Timekeeper
from streams.fleet.heard import Heard
from streams.fleet.lease import LEASE_MARGIN_S, Lease
from streams.fleet.own_heartbeats import ALL_NODES, OwnHeartbeats, StoredHeartbeat, read_heartbeats
from streams.fleet.placement import PLACEMENT_VERSION, LiveNode, wanted_shards
from streams.installation.topology import Names
from streams.journal.claim import Owner
from streams.nats.answers import Refused, Stored, StoredMessage
from streams.nats.errors import ApiError
from streams.nats.headers import KV_DELETED, KV_OPERATION, TTL
from streams.nats.jetstream import JetStream
from streams.nats.retry import Complaint, Pauses, until_answered
from streams.nats.wire import Message, Subscription
from streams.task_callbacks import reporting
from streams.versions import UNREADABLE

VERSION = 1
RENEWALS_PER_TTL = 3
"""Renewals in one TTL, so that two may fail."""
RENEWAL_TIMEOUT_S = 2.0
LOOK_PAUSE_MIN_S = 0.01
FORGET_DEAD_AFTER_S = 3600.0
"""Time after which a dead node whose key is gone is forgotten."""

log = logging.getLogger(__name__)


class Member(Struct, frozen=True, kw_only=True):
    """A node as it describes itself in its key.

    - `started_at`: by its wall clock.
    - `heartbeat`: number of its renewals.
    - `ttl_s`: how long each renewal is valid; 0 if unknown.
    - `run`: a random id of the process, so that two with the same name differ.
    - `placement`: the newest that it knows; `draining`: it is being emptied, or is empty (`placement`).
    - `owned`: the shards that it runs; older versions leave it empty.
    """

    v: int = VERSION
    node: str
    started_at: float
    version: str
    heartbeat: int
    ttl_s: float = 0.0
    run: str = ""
    placement: int = 0
    draining: bool = False
    owned: tuple[int, ...] = ()


class Runs(Struct, frozen=True):
    """The runs of a node that its supervisor knows.

    - `own`: that of the new process; drawn by it if empty.
    - `ended`: those of earlier processes that have certainly ended, so that no lease of theirs is in force.
    """

    own: str = ""
    ended: tuple[str, ...] = ()


UNSUPERVISED = Runs()


class _Heartbeat(Struct, frozen=True):
    """A node's last heartbeat: its revision (0: none), when it first reached us by our clock, TTL and number.

    `placement` and `draining`: what it says about them.
    """

    revision: int
    since: float
    ttl_s: float = 0.0
    number: int = 0
    placement: int = 0
    draining: bool = False


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
        runs: Runs = UNSUPERVISED,
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
        self._unstored = Complaint(js, log, "heartbeat.unstored", node=node)
        self._seen: dict[str, _Heartbeat] = {}
        self._runs: dict[tuple[str, str], _Heartbeat] = {}
        self._differing: set[str] = set()
        self._seen_as_of = -math.inf
        self._counted_from = -math.inf
        self._hint = asyncio.Event()
        self._on_change: list[Callable[[], None]] = []
        self._on_lapse: list[Callable[[], None]] = []
        self._on_lease: list[Callable[[], None]] = []
        self._on_others: list[Callable[[], None]] = []
        self._renew_now = asyncio.Event()
        self._heard = Heard()
        self.owned: Callable[[], Iterable[int]] = tuple
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
            if self.lease.over:
                self.lapse()
        await until_answered(self._read_heartbeats)
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
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
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
        """Let the others know that this node is to be left out, or no longer; True if that is stored.

        If it is not, the next heartbeats say it.
        """
        self.draining = draining
        stored = await self._renew()
        self._update_live([each for each in self.live_nodes if each.name != self.node])
        return stored

    def owned_elsewhere(self) -> frozenset[int]:
        """The shards that other nodes run, by the last heartbeat of each that came: it may be out of date."""
        return self._heard.owned()

    def may_claim(self, owner: Owner | None) -> bool:
        """True if a shard of this owner may be claimed: free, ours, or its holder is silent or has ended."""
        if owner is None or owner.released is not None or (owner.node, owner.run) == (self.node, self.run):
            return True
        if owner.run:
            if owner.node == self.node and owner.run in self._ended_runs:
                return True
            # This also holds for our own name: that process may be asleep and believe that it is the owner.
            return self.is_silent(self.last_sign_of(owner))
        if owner.node != self.node:
            return self.is_stale(owner.node)
        return self._time.boottime() - self._started_boottime >= self._ttl_s + LEASE_MARGIN_S

    def last_sign_of(self, owner: Owner) -> _Heartbeat:
        """The last sign of life of the process: its claim, seen now, if that names a heartbeat new to us."""
        seen = self._runs.get((owner.node, owner.run))
        if seen is None or seen.number < owner.heartbeat:
            ttl_s = seen.ttl_s if seen else 0.0
            seen = _Heartbeat(0, self._time.boottime(), ttl_s, owner.heartbeat)
            self._runs[owner.node, owner.run] = seen
        return seen

    def is_stale(self, node: str) -> bool:
        """True if, at our last look, its heartbeat had not changed for the TTL plus half a second.

        The longer of the two TTLs counts: nodes should have the same one, but its lease is as long as its
        own.

        The time counts from the first look at it or the last reconnect; if its key is gone, also from the
        first look after a TTL without one. An unknown node is watched from now on, since it may have come
        after our last look.
        """
        seen = self._seen.get(node)
        if seen is None:
            seen = self._seen[node] = _Heartbeat(0, self._time.boottime())
        return self.is_silent(seen)

    def is_silent(self, seen: _Heartbeat) -> bool:
        return self._seen_as_of >= self._silent_from(seen)

    def _silent_from(self, seen: _Heartbeat) -> float:
        """The time from which on the node counts as dead, unless it shows a new heartbeat."""
        return max(seen.since, self._counted_from) + max(self._ttl_s, seen.ttl_s) + LEASE_MARGIN_S

    # ---- showing ourselves

    async def _keep_renewing(self) -> None:
        pauses = Pauses(self._js)
        while True:
            if self.lease.over:
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
        complaint = Complaint(self._js, log, "lease.lapsed", node=self.node)
        complaint.log_once(f"no heartbeat was stored for {self._ttl_s - LEASE_MARGIN_S:g} s")
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
            owned=tuple(self.owned()),
        )  # fmt: skip
        number = self.heartbeat
        answer = await self._js.publish(
            self._names.node(self.node),
            msgspec.json.encode(member),
            self._expiry(),
            min(RENEWAL_TIMEOUT_S, self._ttl_s / RENEWALS_PER_TTL),
        )
        if isinstance(answer, Stored):
            self._unstored.over()
            self._own.add(StoredHeartbeat(answer.sequence, sent_at, self._time.boottime()))
            self.stored = number
            return self._acknowledged(lease, sent_at)
        self._unstored.log_once(answer.text if isinstance(answer, Refused) else answer.why)
        return False

    def _acknowledged(self, lease: Lease, sent_at: float) -> bool:
        begins = not lease.valid()
        if not lease.acknowledged(sent_at):
            return False
        if begins:
            for listener in self._on_lease:
                listener()
        return True

    def _expiry(self) -> dict[str, str]:
        """The header for the lifetime of a key that is not renewed; the server accepts whole seconds."""
        return {TTL: f"{math.ceil(self._ttl_s)}s"}

    # ---- looking at the others

    async def _keep_reading(self) -> None:
        wait_s = self._until_next_read_s()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._hint.wait()
            self._hint.clear()
            try:
                # A look says nothing about the time after our own last heartbeat.
                is_due = self._own.last.sent_at < self._next_silent_from() <= self._time.boottime()
                stored = not is_due or await self._renew()
                await self._read_heartbeats()
                # A node that is overdue is judged only once our own heartbeats are stored again.
                wait_s = self._until_next_read_s() if stored else self._ttl_s / RENEWALS_PER_TTL
            except (Unavailable, ApiError) as error:  # The bucket may be gone, and be recreated.
                log.debug("members.unseen", extra={"why": str(error)})
                wait_s = self._ttl_s / RENEWALS_PER_TTL

    def _until_next_read_s(self) -> float:
        """A third of the TTL, or less if another node would count as dead sooner, or does since the look."""
        due_in = self._next_silent_from() - self._time.boottime()
        return max(LOOK_PAUSE_MIN_S, min(self._ttl_s / RENEWALS_PER_TTL, due_in))

    def _next_silent_from(self) -> float:
        """The next time at which another node would count as dead."""
        others = [seen for node, seen in self._seen.items() if node != self.node]
        others += [seen for run, seen in self._runs.items() if run != (self.node, self.run)]
        silent_from = (self._silent_from(seen) for seen in others)
        return min((at for at in silent_from if at > self._seen_as_of), default=math.inf)

    async def _read_heartbeats(self) -> None:
        """Read the bucket. Each heartbeat changes the key's revision, so none is missed."""
        page, as_of = await read_heartbeats(self._js, self._names, lambda: self._own.last)
        present: dict[str, bool] = {}
        for message in page.messages:
            node = self._names.node_of_heartbeat(message.subject)
            if message.data:
                present[node] = self._record_heartbeat(node, message)
            elif KV_OPERATION in message.headers:
                self._seen.pop(node, None)
        self._extend_unseen(present)
        self._seen_as_of = as_of
        self._forget(present)
        shown = {node for node, is_new in present.items() if is_new}
        self._update_live([
            LiveNode(each, seen.placement, seen.draining) for each, seen in self._seen.items()
            if each != self.node and self.is_live(each, shown)
        ])  # fmt: skip

    def _update_live(self, others: Collection[LiveNode]) -> None:
        live = tuple(sorted([LiveNode(self.node, self.placement, self.draining), *others]))
        if live != self.live_nodes:
            self.live_nodes = live
            self._heard.keep(self.live)
            for listener in self._on_change:
                listener()

    def _record_heartbeat(self, node: str, message: StoredMessage) -> bool:
        """Record the heartbeat; True if it is new to us, and not certainly older than a TTL."""
        seen, now = self._seen.get(node), self._time.boottime()
        if seen is not None and seen.revision == message.sequence:
            return False
        member = self._member(node, message.data)
        if self._own.is_older(message.sequence, now - max(self._ttl_s, member.ttl_s) - LEASE_MARGIN_S):
            return False
        since = self._heard.came_at(node, member.run, member.heartbeat, now)
        seen = _Heartbeat(
            message.sequence, since, member.ttl_s, member.heartbeat, member.placement, member.draining
        )
        self._seen[node] = self._runs[node, member.run] = seen
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

    def _extend_unseen(self, present: Collection[str]) -> None:
        """Give nodes more time after a TTL without a look: a heartbeat may have expired unseen."""
        now = self._time.boottime()
        if now - self._seen_as_of >= self._ttl_s:
            for node, seen in self._seen.items():
                if node not in present:
                    self._seen[node] = replace(seen, since=now)
            for (node, run), seen in self._runs.items():
                if self._seen.get(node) is not seen:
                    self._runs[node, run] = replace(seen, since=now)

    def is_live(self, node: str, shown: Collection[str]) -> bool:
        """True if the node should own shards: from a heartbeat that is new to us until it is silent.

        A node that was silent is not live again because its time begins again, as it does with a connection:
        that is a reason to wait with claims, and none to hand shards to a node that died long ago.
        `shown`: the nodes that showed a new heartbeat in this look.
        """
        return (node in self.live or node in shown) and not self.is_stale(node)

    def _forget(self, present: Collection[str]) -> None:
        before = self._seen_as_of - FORGET_DEAD_AFTER_S
        gone = [node for node, seen in self._seen.items() if node not in present and seen.since < before]
        for node in gone:
            del self._seen[node]
        for key in [key for key, seen in self._runs.items() if seen.since < before]:
            if self._seen.get(key[0]) is not self._runs[key]:
                del self._runs[key]

    def _on_heartbeat(self, message: Message) -> None:
        """Look at once if a node is new, was silent, leaves, or is to be left out from now on."""
        node = self._names.node_of_heartbeat(message.subject)
        if node not in self.live or not message.data:
            self._heard.drop(node)
            self._hint.set()
            return
        member = self._member(node, message.data)
        if node == self.node:
            if member.run != self.run:
                # Our looks cannot see it, since our own heartbeats overwrite it.
                seen = _Heartbeat(0, self._time.boottime(), member.ttl_s, member.heartbeat)
                self._runs[node, member.run] = seen
            return
        if self._runs.get((node, member.run)) is not self._seen.get(node):
            # Two processes have that name, and a look shows only the one that was stored last.
            seen = _Heartbeat(0, self._time.boottime(), member.ttl_s, member.heartbeat)
            self._runs[node, member.run] = seen
        self._heard.add(node, member.run, member.heartbeat, self._time.boottime(), member.owned)
        for listener in self._on_others:
            listener()
        if LiveNode(node, member.placement, member.draining) not in self.live_nodes:
            self._hint.set()

    def connection_changed(self, connected: bool) -> None:
        if connected:
            self._counted_from = self._time.boottime()
            self._hint.set()
