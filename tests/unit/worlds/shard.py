"""One shard in memory for tests of actor and host: every port in its simplest form, on virtual time.

The stand-ins check what must hold at every step: facts fold to the state that was handed in with them, a dead
letter is buried only when it is confirmed, and a message is acked only when the confirmed facts release it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from actors.configuration.policy import Policy
from actors.delivery_totals import DeliveryTotals
from actors.errors import Unavailable
from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.alerts.health_changes import HealthChange
from actors.machine.bucket import Unclean
from actors.machine.event import Event
from actors.machine.evolve import evolve
from actors.machine.facts import AlertFact, Burial, Fact, TurnedAway
from actors.machine.numbering import is_duplicate
from actors.machine.state import State
from actors.memory.unacked import NodeHolders
from actors.ports import Absent, BacklogPage, Invalid, Removal, ShardPage
from actors.runtime.actor import Actor
from actors.runtime.environment import HostPorts, ShardClaim
from actors.runtime.host import Host
from actors.tenant_settings import SettingsByTenant
from tests.unit.worlds.sender import Sender
from tests.unit.worlds.values import NOW, event, policy

FLUSH_S = 0.2
RECEIVER = "acme.billing"


class Clock:
    """The ownership's clock."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now(self) -> float:
        return NOW + self.ahead_s + asyncio.get_running_loop().time()


class Outage:
    """The outage of the node itself."""

    def __init__(self) -> None:
        self.since: float | None = None
        self.asked = 0

    def may_try(self, receiver: str, policy: Policy) -> bool:
        self.asked += 1
        return self.since is None

    def holds(self, policy: Policy) -> bool:
        return self.since is not None


class DownHosts:
    """The hosts that are down: if one is, all are."""

    def __init__(self) -> None:
        self.count = self.asked = 0

    def may_try(self, receiver: str, policy: Policy, *, has_attempts: bool) -> bool:
        self.asked += 1
        return not self.count

    def is_down(self, policy: Policy) -> bool:
        return bool(self.count)


class Recorded(NamedTuple):
    """A fact and the state after it."""

    fact: Fact
    state: State


class Journal:
    """Confirms an urgent fact at once, any other after 200 ms; none while `held`, as from `hold_at` on."""

    def __init__(self, world: "ShardWorld") -> None:
        self.index = self.confirmed_index = 0
        self.held = self.is_stalled = False
        self.hold_at: type[Fact] | None = None
        self.floor = 0
        self.folded: dict[str, State] = {}
        self.facts: list[Fact] = []
        self.turned_away: set[int] = set()
        self._world = world
        self.waiting: list[Recorded] = []
        self._timer: asyncio.Handle | None = None

    def add(self, fact: Fact, state: State, urgent: bool = False) -> int:
        self.index += 1
        self.held = self.held or (self.hold_at is not None and isinstance(fact, self.hold_at))
        self.waiting.append(Recorded(fact, state))
        loop = asyncio.get_running_loop()
        if urgent:
            loop.call_soon(self.append)
        elif self._timer is None:
            self._timer = loop.call_later(FLUSH_S, self.append)
        return self.index

    def flush(self) -> None:
        """Append what waits without delay; an actor asks for that while it cannot go on."""
        if self.waiting:
            asyncio.get_running_loop().call_soon(self.append)

    def append(self) -> None:
        """One append, which is confirmed at once."""
        host = self._world.host
        if self.held or host.stopped or host.recorder is not self:
            return
        self._timer = None
        entries, self.waiting = self.waiting, []
        self.floor = host.floor_for_flush(self.index)
        self._fold(entries)
        self.confirmed_index = self.index
        host.confirm(entries)

    def _fold(self, entries: Sequence[Recorded]) -> None:
        for fact, state in entries:
            before = self.folded.get(fact.receiver, State(receiver=fact.receiver))
            after = self.folded[fact.receiver] = evolve(before, fact)
            assert after == state
            assert after.frontier.position >= before.frontier.position
            assert after.frontier.sequence >= before.frontier.sequence
            self.facts.append(fact)
            if isinstance(fact, TurnedAway):
                self.turned_away |= {each.position for each in fact.events}

    def store(self, count: int) -> None:
        """The first of those that wait are stored, and the answers are lost."""
        self._fold(self.waiting[:count])

    def let_go(self) -> None:
        """Confirm what was held back."""
        self.held, self.hold_at = False, None
        self.append()

    def of(self, *kinds: type[Fact]) -> list[Any]:
        """The confirmed facts of these kinds."""
        return [fact for fact in self.facts if isinstance(fact, kinds)]


class Stream:
    """The deliveries, and the backlog that is read from them. `lost` positions are gone."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Event]] = []
        self.lost: set[int] = set()
        self.reads = self.stretches = 0
        self.delay_s = 0.002
        self.unavailable = False

    def of(self, receiver: str, after: int) -> list[Event]:
        return [
            each for to, each in self.messages
            if to == receiver and each.position > after and each.position not in self.lost
        ]  # fmt: skip

    async def _found(self, receiver: str, after: int) -> list[Event]:
        """Reads the stored events; the answer is as of the question, and takes its time."""
        self.reads += 1
        found = self.of(receiver, after)
        await asyncio.sleep(self.delay_s)
        if self.unavailable:
            raise Unavailable("no leader")
        return found

    async def read(self, receiver: str, after: int, up_to: int, count_max: int) -> BacklogPage:
        found = (await self._found(receiver, after))[:count_max]
        end = found[-1].position if len(found) == count_max else up_to
        return BacklogPage(events=found, complete=end >= up_to)

    async def read_all(self, after: int, up_to: int, count_max: int) -> ShardPage:
        self.stretches += 1
        found = [(to, each) for to, each in self.messages if each.position > after][:count_max]
        await asyncio.sleep(self.delay_s)
        if self.unavailable:
            raise Unavailable("no leader")
        end = found[-1][1].position if len(found) == count_max else up_to
        return ShardPage(
            events=[each for each in found if each[1].position not in self.lost], complete=end >= up_to
        )

    async def event(self, receiver: str, position: int) -> Event | None:
        found = await self._found(receiver, position - 1)
        return found[0] if found and found[0].position == position else None

    async def first_since(self, receiver: str, at: float) -> int | None:
        found = await self._found(receiver, 0)
        return next((each.position for each in found if each.stored_at >= at), None)

    async def count(self, receiver: str, after: int) -> int:
        return len(await self._found(receiver, after))

    async def erase(self, position: int, stored_at: float) -> None:
        await asyncio.sleep(self.delay_s)
        self.lost.add(position)

    async def end(self) -> int:
        return max((each.position for _, each in self.messages), default=0)


class DeadLetterWriter:
    """Takes dead letters."""

    def __init__(self, world: "ShardWorld") -> None:
        self.buried: list[Burial] = []
        self.answers: dict[int, str] = {}
        self._world = world

    async def bury(self, receiver: str, burials: Sequence[Burial], answers: Mapping[int, str]) -> None:
        assert set(burials) <= set(self._world.journal.folded[receiver].burials)
        await asyncio.sleep(0.001)
        self.buried += burials
        self.answers |= answers


class AlertWriter:
    """Takes the events about alerts, in `stored`, unless `unavailable`; the next ones fail at first.

    `fails_next`: how many of them.
    """

    def __init__(self, world: "ShardWorld") -> None:
        self.stored: list[AlertFact] = []
        self.unavailable = False
        self.fails_next = 0
        self._world = world

    async def publish(self, fact: AlertFact) -> None:
        assert fact in self._world.journal.folded[fact.receiver].unpublished_alerts
        await asyncio.sleep(0.001)
        if self.unavailable or self.fails_next:
            self.fails_next = max(0, self.fails_next - 1)
            raise Unavailable("no leader")
        self.stored.append(fact)


class Policies:
    """The configurations: what the node knows, and what the leader says."""

    def __init__(self) -> None:
        self.is_complete = True
        self.known: dict[str, Policy] = {}
        self.leader: dict[str, Policy | Invalid] = {}
        self.invalid: set[str] = set()
        self.removals: dict[str, Removal] = {}
        self.revisions: dict[str, int] = {}
        self.asked = 0
        self.unavailable = False

    def revision(self, receiver: str) -> int:
        return self.revisions.get(receiver, 1)

    def removal(self, receiver: str) -> Removal | None:
        return self.removals.get(receiver)

    def remove(self, receiver: str, at: float) -> None:
        """Removes a configuration; what else is known of it is the caller's to change."""
        before = self.removals.get(receiver)
        self.removals[receiver] = Removal(before.revision + 1 if before else 1, at)

    def policy(self, receiver: str) -> Policy | None:
        return self.known.get(receiver)

    def has_record(self, receiver: str) -> bool:
        return receiver in self.known or receiver in self.removals or receiver in self.invalid

    async def catch_up(self) -> None:
        """Catches up with the leader, as its answer does at the latest."""
        self.asked += 1
        found = dict(self.leader)
        await asyncio.sleep(0.003)
        if self.unavailable:
            raise Unavailable("no leader")
        for receiver, given in found.items():
            if isinstance(given, Policy):
                self.known.setdefault(receiver, given)
            else:
                self.invalid.add(receiver)

    async def confirm(self, receiver: str) -> Policy | Absent | Invalid:
        self.asked += 1
        found = self.leader.get(receiver, Absent())
        await asyncio.sleep(0.003)
        if self.unavailable:
            raise Unavailable("no leader")
        return found


class Snapshots:
    """The bucket of snapshots."""

    def __init__(self) -> None:
        self.held: dict[str, State] = {}
        self.loads = 0
        self.delay_s = 0.002

    async def load(self, receiver: str, due: float = 0.0) -> State | None:
        self.loads += 1
        found = self.held.get(receiver)
        await asyncio.sleep(self.delay_s)
        return found

    async def receivers(self) -> list[str]:
        found = list(self.held)
        await asyncio.sleep(0.002)
        return found


class ShardWorld:
    """A shard under one claim after another. Positions are the shard's, over all its receivers."""

    def __init__(self, given: Policy | None = None, *, unacked_max: int = 20_000) -> None:
        self.clock = Clock()
        self.sender = Sender()
        self.stream = Stream()
        self.policies = Policies()
        self.snapshots = Snapshots()
        self.dead_letters = DeadLetterWriter(self)
        self.alerts = AlertWriter(self)
        self.logged_alerts: list[AlertFact] = []
        self.settings = SettingsByTenant()
        self.all_know_alerts = self.all_know_handshakes = True
        self.all_know_transforms = self.all_know_paces = self.all_know_offline_pings = True
        self.totals = DeliveryTotals()
        self.journal = Journal(self)
        self.within_lease = True
        self.own_outage, self.down_hosts = Outage(), DownHosts()
        self.acked, self.acked_to = list[int](), 0
        self.held: list[bool] = []
        self.saturated = False
        self.node_holders = NodeHolders()
        self.refused: list[str] = []
        self.health_changes: list[HealthChange] = []
        self.epoch = 0
        self.unacked_max = unacked_max
        if given is not None:
            self.policies.known[RECEIVER] = self.policies.leader[RECEIVER] = given
        self.claim(unclean=False)

    def claim(
        self, *, unclean: bool, snapshots: bool = False, parked: Sequence[str] = (),
        handed_out: int | None = None,
    ) -> None:  # fmt: skip
        """Begin an ownership with what the journal's tail tells, or with an empty tail and snapshots.

        `parked` are listed as such, and have no snapshot. So many messages are `handed_out` at once.
        """
        old, self.journal = self.journal, Journal(self)
        self.journal.folded = dict(old.folded)
        self.journal.facts, self.journal.floor = old.facts, old.floor
        self.journal.turned_away = old.turned_away
        self.epoch += 1
        self.handed_out = self.acked_to = self.journal.floor
        at, last = self.clock.now(), len(self.stream.messages)
        claim = ShardClaim(
            epoch=self.epoch, at=at, position=last,
            unclean=Unclean(self.epoch, last, at) if unclean else None, floor=self.journal.floor, needed=0,
        )  # fmt: skip
        ports = HostPorts(
            clock=self.clock, recorder=self.journal, sender=self.sender, backlog=self.stream,
            dead_letters=self.dead_letters, snapshots=self.snapshots, policies=self.policies,
            totals=self.totals, within_lease=lambda: self.within_lease, ack=self._acked,
            set_pulling_paused=self.held.append, saturated=lambda: self.saturated,
            refuse=self.refused.append, on_health_change=self.health_changes.append,
            on_alert=self.logged_alerts.append, alerts=self.alerts, alert_limits=self.settings.alert_limits,
            outage=self.own_outage, down_hosts=self.down_hosts,
            may_record_alerts=lambda: self.all_know_alerts, all_know_paces=lambda: self.all_know_paces,
            all_know_handshakes=lambda: self.all_know_handshakes,
            all_know_transforms=lambda: self.all_know_transforms,
            all_know_offline_pings=lambda: self.all_know_offline_pings, node_holders=self.node_holders,
        )  # fmt: skip
        self.host = Host(claim, ports, unacked_max=self.unacked_max)
        states = self.journal.folded
        if snapshots:
            self.snapshots.held = dict(states)
        listed = {each.receiver: each.wakes_at for each in states.values() if each.is_unfinished}
        listed |= dict.fromkeys(parked)
        self.host.start({}, listed) if snapshots else self.host.start(states, {})
        self.hand_out(handed_out)

    def crash(
        self, *, snapshots: bool = False, parked: Sequence[str] = (), stored: int = 0,
        handed_out: int | None = None,
    ) -> None:  # fmt: skip
        """The owner is gone with its memory; the next one claims at once.

        A number of the facts that it did not see confirmed are in the journal all the same.
        """
        self.host.stop()
        self.journal.store(stored)
        self.sender.in_flight.clear()
        self.sender.posts_in_flight.clear()
        self.claim(unclean=True, snapshots=snapshots, parked=parked, handed_out=handed_out)

    def outage(self, has_outage: bool) -> None:
        """From now on the node can connect to no host, or can again."""
        self.own_outage.since = 0.0 if has_outage else None
        self.host.outage_changed()

    @property
    def actor(self) -> Actor:
        return self.host.residents.activate(RECEIVER)

    @property
    def state(self) -> State:
        return self.actor.state

    # ---- messages

    def publish(self, count: int = 1, *, receiver: str = RECEIVER, **members: Any) -> None:
        """Store events and hand them out."""
        self.store(count, receiver=receiver, **members)
        self.hand_out()

    def store(self, count: int = 1, *, receiver: str = RECEIVER, **members: Any) -> None:
        """Store events that the consumer has not handed out yet."""
        for _ in range(count):
            position = len(self.stream.messages) + 1
            stored = event(position, at=self.clock.now(), **members)
            self.stream.messages.append((receiver, stored))

    def hand_out(self, count: int | None = None) -> None:
        """The consumer hands out what it has not, or so many of them, as long as it is not full."""
        for receiver, stored in self.stream.messages[self.handed_out :][:count]:
            self.handed_out = stored.position
            if stored.position not in self.stream.lost:
                self.host.arrive(receiver, stored)

    def hand_out_again(self, count: int | None = None) -> None:
        """There is a new consumer: everything beyond the floor, or so much of it, comes once more."""
        self.handed_out = self.journal.floor
        self.hand_out(count)

    def _acked(self, up_to: int) -> None:
        for position in range(self.acked_to + 1, up_to + 1):
            self.acked_to = position
            if position not in self.stream.lost:
                self.acked.append(position)
                assert self._is_released(position)

    def _is_released(self, position: int) -> bool:
        receiver, stored = self.stream.messages[position - 1]
        state, unknown = self.journal.folded.get(receiver), State(receiver=UNKNOWN_RECEIVERS)
        record = self.journal.folded.get(UNKNOWN_RECEIVERS, unknown)
        if state is None or position in self.journal.turned_away:
            undecided = record.parked and position > record.frontier.position
            return undecided or position in self.journal.turned_away
        still_open = any(position == each.position for each in state.open)
        settled = position <= state.frontier.position and not still_open
        return settled or state.parked or is_duplicate(state.frontier, stored)

    # ---- configurations

    def put(self, given: Policy | None, receiver: str = RECEIVER) -> None:
        """The configuration is another one, or is gone (None), and the node knows."""
        if given is None:
            self.policies.known.pop(receiver, None)
            self.policies.leader.pop(receiver, None)
            self.policies.remove(receiver, self.clock.now())
        else:
            self.policies.known[receiver] = self.policies.leader[receiver] = given
        self.host.configuration_changed(receiver, given)

    # ---- waiting

    async def until(self, condition: Callable[[], bool], *, within_s: float = 3600.0) -> None:
        """Let time pass until it is so; the longer it takes, the less closely it is watched."""
        passed_s = 0.0
        while not condition():
            assert passed_s < within_s, "it never came to that"
            await asyncio.sleep(pause_s := 0.001 + 0.01 * passed_s)
            passed_s += pause_s

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    async def until_settled(self, count: int) -> None:
        """Wait until `count` events are recorded as delivered, and everything is acked."""
        folded = self.journal.folded
        await self.until(lambda: RECEIVER in folded and folded[RECEIVER].counters.delivered >= count)
        await self.until(lambda: self.host.shard_unacked.unacked_count == 0)


def strict(**members: Any) -> ShardWorld:
    """A world with one receiver, configured so."""
    return ShardWorld(policy(**members))


def relaxed(**members: Any) -> ShardWorld:
    """A world with one receiver whose events need not come in order."""
    return ShardWorld(policy(order="relaxed", **members))
