"""The host of one shard: it keeps the actors in memory, and ties them to the shard's journal and inbox.

It lives as long as one ownership. Messages come in through `arrive`. The journal asks it for the
`floor_for_flush` when it cuts a flush, and calls `confirm` when facts are confirmed. Acks go out through the
callable that the host was given. Nothing here awaits anything but the ports.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from actors.aligned_timers import next_tick
from actors.configuration.policy import Policy
from actors.ids import UNKNOWN_RECEIVERS, tenant_of
from actors.machine.event import Event
from actors.machine.state import State, is_left_over
from actors.memory.failing_receivers import FailingReceivers
from actors.memory.retention import NeededPosition, Retention
from actors.memory.unacked import ShardUnacked
from actors.memory.unsaved_states import UnsavedStates
from actors.ports import Recorded
from actors.runtime.alerts.watch import AlertWatch
from actors.runtime.environment import HostPorts, ShardClaim
from actors.runtime.flow_control import FlowControl
from actors.runtime.residents import WOKEN_IN_TURN_MAX, Resident, Residents

UNACKED_MAX_S = 2.0
SWEEP_EVERY_S = 0.5
PASSIVATE_AFTER_S = 60.0
COMING_FOR_EVICTION_MAX = 1024
"""Receivers of a shard that may be coming into memory at a time to give their events up."""
log = logging.getLogger(__name__)


class Host:
    """The actors of one shard, under one claim.

    - `unacked_max`: messages that the server hands out at most before the first of them is acked.
    - `unsaved`: confirmed states that no snapshot holds.
    - `parked`: receivers that have to come back after a takeover.
    - `actors`: those that are in memory, the same as the residents'.
    """

    def __init__(self, claim: ShardClaim, ports: HostPorts, *, unacked_max: int) -> None:
        self.epoch = claim.epoch
        self.claimed_at = claim.at
        self.claim_position = claim.position
        self.unclean = claim.unclean
        self.unacked_max = unacked_max
        self.clock = ports.clock
        self.recorder = ports.recorder
        self.sender = ports.sender
        self.backlog = ports.backlog
        self.dead_letters = ports.dead_letters
        self.snapshots = ports.snapshots
        self.policies = ports.policies
        self.totals = ports.totals
        self.ack = ports.ack
        self.refuse = ports.refuse
        self.on_health_change = ports.on_health_change
        self.on_alert = ports.on_alert
        self.outage = ports.outage
        self.down_hosts = ports.down_hosts
        self.all_know_handshakes = ports.all_know_handshakes
        self.all_know_transforms = ports.all_know_transforms
        self.all_know_paces = ports.all_know_paces
        self.all_know_offline_pings = ports.all_know_offline_pings
        self.failing = FailingReceivers(claim.at, ports.policies.policy, ports.on_health_change)
        self.alerts = AlertWatch(self, ports.alerts, ports.alert_limits, ports.may_record_alerts)
        self.flow_control = FlowControl(ports.set_pulling_paused, ports.saturated, ports.node_holders)
        self.shard_unacked = ShardUnacked(claim.floor)
        self.retention = Retention()
        self.residents = Residents(self)
        self.actors = self.residents.actors
        self.unsaved = UnsavedStates()
        self.parked: dict[str, float | None] = {}
        self.stopped = self.draining = self._wake_all_later = False
        self.in_flight = 0
        self._within_lease = ports.within_lease
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._attempt_ended = asyncio.Event()
        self._cut_index, self._cut_floor, self._confirmed_floor = 0, claim.floor, claim.floor
        self._noted: dict[str, State] = {}
        self._needed = NeededPosition(min(claim.needed, claim.floor + 1))

    # ---- beginning and end

    def start(self, states: dict[str, State], parked: dict[str, float | None]) -> None:
        """Take over the actors that the journal's tail names, and those that have to come back by themselves.

        `parked` says when each wakes, if that is known. All of them are loaded gradually, so that
        others are not kept waiting; a receiver that gets an event or is asked for comes at once.
        """
        self.unsaved.changed.update(states)
        self._noted.update(states)
        self.parked.update(parked)
        self.parked.update((each.receiver, None) for each in states.values() if each.is_unfinished)
        self.residents.start(list(states), parked)
        self.spawn(self._sweep())
        self.spawn(self.alerts.run())

    def stop(self) -> None:
        """Start, record and ack nothing more."""
        self.stopped = True
        self.flow_control.stop()
        self.residents.stop()
        for task in self._tasks:
            task.cancel()
        for _, waiter in self._waiters:
            waiter.cancel()

    def continue_under(self, epoch: int, within_lease: Callable[[], bool]) -> None:
        """Continue under another claim of this node, without a gap: memory and clock stay valid.

        What the first claim says about earlier owners stays valid, too: no other owner came since then, and
        this memory knows by itself what it has posted.
        """
        self.epoch = epoch
        self._within_lease = within_lease
        self.claimed_at = self.clock.now()

    async def drain(self, timeout_s: float) -> None:
        """Start nothing more, and wait for the attempts in flight."""
        self.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.in_flight:
                    self._attempt_ended.clear()
                    await self._attempt_ended.wait()

    def attempt_started(self) -> None:
        """Count an attempt that is in flight now."""
        self.in_flight += 1

    def attempt_ended(self) -> None:
        """Count an attempt that is over."""
        self.in_flight -= 1
        if self.draining:
            self._attempt_ended.set()
        unacked = self.shard_unacked
        self.flow_control.attempt_ended(unacked.unacked_count - unacked.joined_count, unacked.holder_count)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the shard. If it raises, that is a defect, and logged as such."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("actor.broken", exc_info=error)

    def outage_changed(self) -> None:
        """This node can connect to no host from now on, or can again.

        What time passes until then is not failing time of any receiver, which is recorded.
        """
        if self.outage.since is not None:
            self.spawn(self.residents.note_outage())
        else:
            self.residents.wake_all()

    # ---- messages and configurations

    def arrive(self, receiver: str, event: Event) -> None:
        """Give a message that the consumer handed out to its actor, or to the record of unknown receivers."""
        actor, unknown = self.actors.get(receiver), self.residents.unknown
        # Earlier messages for the same name go first.
        if unknown is not None and receiver in unknown.undecided.receivers:
            unknown.note(receiver, event)
        elif (actor is not None and actor.live.state.opened) or self.knows(receiver):
            (actor or self.residents.activate(receiver)).arrive(event)
        else:
            self.residents.activate_unknown().note(receiver, event)
        unacked = self.shard_unacked
        self.flow_control.message_arrived(unacked.unacked_count - unacked.joined_count, unacked.holder_count)
        if unacked.unacked_count > self.unacked_max // 2:
            self.residents.park_largest()

    def knows(self, receiver: str) -> bool:
        """True if the receiver has a state, a configuration, or a removal of one."""
        if (
            self.policies.has_record(receiver)
            or self.unsaved.get(receiver) is not None
            or receiver in self.parked
        ):
            return True
        actor, unknown = self.actors.get(receiver), self.residents.unknown
        if unknown is not None and receiver in unknown.remembered:
            return True
        # The actor may be here only because a request named it.
        return actor is not None and not actor.is_blank

    def known_policy(self, receiver: str) -> Policy | None:
        """The configuration in force; None if none is known, so that its actor asks the leader for it."""
        return self.policies.policy(receiver) if self.policies.is_complete else None

    def configuration_changed(self, receiver: str, policy: Policy | None) -> None:
        """Pass on a changed configuration; only a receiver that waits, or was removed, is activated."""
        self.failing.note_configuration(receiver)
        actor, unknown = self.actors.get(receiver), self.residents.unknown
        if unknown is not None and receiver in unknown.undecided.receivers:
            unknown.give_to_known(receiver)
        if actor is not None:
            actor.configure(policy if self.policies.is_complete else None)
        elif not self.policies.is_complete:
            return  # Those that wait are being loaded, and ask the leader; most have nothing to do.
        elif policy is None or receiver in self.parked or self.policies.removal(receiver) is not None:
            self.residents.activate(receiver)
        elif unknown is not None and unknown.has_unread:
            self.residents.activate(receiver)  # Its events there need not wait until they are found.

    # ---- what actors ask

    @property
    def released_to(self) -> int:
        """The position up to which all events are released and decided, so none belongs to a new receiver."""
        floor, unknown = self._confirmed_floor, self.residents.unknown
        return unknown.opens_above(floor) if unknown else floor

    def has_turned_away(self, positions: Collection[int]) -> bool:
        """True if it is on confirmed record that no receiver gets these events for an unknown receiver.

        A receiver that is put later begins above them, under any owner. Their dead letters are stored.
        """
        floor, unknown = self._confirmed_floor, self.residents.unknown
        if unknown is not None:
            return unknown.has_recorded(positions, floor)
        return max(positions, default=0) <= floor

    @property
    def undecided_to(self) -> int:
        """The last position that may have an event for an unknown receiver only in the stream; 0 if none."""
        unknown = self.residents.unknown
        return unknown.cursor.seen_to if unknown and unknown.state.parked else 0

    def within_lease(self) -> bool:
        """True if a first byte may leave now."""
        return not self.stopped and self._within_lease()

    def may_start(self) -> bool:
        """True if an attempt may take its token now; if not, all actors are woken once it may."""
        if self.recorder.is_stalled or not self.within_lease():
            self._wake_all_later = True
            return False
        return not self.draining

    def may_have_posted(self, state: State, first_unacked: int) -> bool:
        """True if an owner that vanished may have posted an unrecorded request to this receiver."""
        if self.unclean is None:
            return False
        waits = bool(state.open) or state.parked or self.shard_unacked.received < self.unclean.position
        return waits or 0 < first_unacked <= self.unclean.position

    async def confirmed_to(self, index: int) -> None:
        """Return once the journal holds the fact with that index; cancelled if the shard stops before."""
        if self.recorder.confirmed_index < index:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((index, waiter))
            await waiter

    # ---- what the journal says

    def floor_for_flush(self, index: int) -> int:
        """The floor at this cut, after the facts up to `index`; remembered until the flush is confirmed."""
        self._cut_index, self._cut_floor = index, self.shard_unacked.floor(index)
        return self._cut_floor

    def confirm(self, entries: Sequence[Recorded]) -> None:
        """The journal has confirmed these facts: ack their messages, and wake the actors that waited."""
        index = self.recorder.confirmed_index
        before = index - len(entries)
        touched: dict[str, Resident] = {}
        changed = self.unsaved.changed
        for entry in entries:
            fact, state = entry.fact, entry.state
            receiver = fact.receiver
            actor = self.actors.get(receiver) or self.residents.find(receiver)
            if actor is not None:
                actor.live.confirm(fact, state)
                touched[receiver] = actor
            changed[receiver] = self._noted[receiver] = state
        if self._cut_index <= index:
            self._confirmed_floor = self._cut_floor
        for receiver, actor in touched.items():
            self._note_parked(receiver, actor.live.confirmed)
            # Events that were turned away are buried once that is confirmed.
            if (
                actor.live.barrier_index > before
                or actor.live.waits_for_room
                or actor is self.residents.unknown
            ):
                actor.wake()
        self.acknowledge()
        due = [waiter for each, waiter in self._waiters if each <= index and not waiter.done()]
        self._waiters = [(each, waiter) for each, waiter in self._waiters if each > index]
        for waiter in due:
            waiter.set_result(None)
        if self._wake_all_later:
            self._wake_all_later = False
            self.residents.wake_all()

    def count_parked(self) -> int:
        """The receivers whose events wait only in the stream.

        Others are in `parked`, too: they owe a burial, or may change an alert. A receiver that is not loaded
        counts.
        """
        found = map(self.actors.get, self.parked)
        return sum(actor is None or not actor.loaded or actor.state.parked for actor in found)

    def _note_parked(self, receiver: str, state: State) -> None:
        if state.is_unfinished:
            self.parked.setdefault(receiver, None)
        elif self.parked:
            self.parked.pop(receiver, None)

    def acknowledge(self) -> None:
        """Ack everything up to the floor of the confirmed facts.

        The next flush may be hours away if all receivers are parked. So the floor may be above the recorded
        one, from which every other consumer begins.
        """
        index = self.recorder.confirmed_index
        self.shard_unacked.forget(index)
        if self._cut_index <= index:
            self.ack(self.shard_unacked.floor(index))

    # ---- snapshots and memory

    def note_state(self, state: State) -> None:
        """Record a state that was loaded."""
        self._noted[state.receiver] = state

    def forgettable(self, states: dict[str, State]) -> list[str]:
        """The receivers among these whose states need not be remembered."""
        floor, now = self._confirmed_floor, self.clock.now()
        return [receiver for receiver, state in states.items() if is_left_over(state, floor, now)]

    def snapshots_written(self) -> None:
        """Forget the unsaved states that were taken, since the snapshots hold them."""
        written = self.unsaved.written()
        if self.residents.unknown is not None:
            self.residents.unknown.remembered.update(written)

    def needed(self) -> NeededPosition:
        """The lowest stream position that this shard still needs.

        It never falls: a message that is not needed once is never needed again. It does not rise either as
        long as one of the receivers that have to come back is not in memory.
        """
        self._note_retention()
        if not self.residents.not_loaded:
            self._needed = self._needed.raised(self.retention.lowest(self._confirmed_floor))
        return self._needed

    def _note_retention(self) -> None:
        noted, self._noted = self._noted, {}
        for state in noted.values():
            self.retention.update(state)

    def evict(self, tenant: str, below: int) -> None:
        """Make the events of a tenant ("": of all) that wait below that position dead letters.

        The stream has no room for them. Events for unknown receivers have one record for all tenants,
        so they go only if all tenants are evicted. A receiver that is not in memory is loaded, and follows
        the next order.
        """
        self._note_retention()
        self.spawn(self._evict(tenant, below, self.retention.below(below)))

    async def _evict(self, tenant: str, below: int, receivers: list[str]) -> None:
        coming = 0
        for number, receiver in enumerate(receivers, 1):
            if number % WOKEN_IN_TURN_MAX == 0:
                await asyncio.sleep(0)
            if tenant and (receiver == UNKNOWN_RECEIVERS or tenant_of(receiver) != tenant):
                continue
            resident = self.residents.find(receiver)
            if resident is None or not resident.loaded:
                coming += 1
                if coming <= COMING_FOR_EVICTION_MAX:
                    self.residents.activate_any(receiver)
                continue
            needed = resident.state.needed_position
            if needed is not None and needed < below:
                resident.give_up_to(below - 1, "evicted")

    async def _sweep(self) -> None:
        """Twice a second park what has been held too long, ack what is released, and drop resting actors.

        Receivers that have been failing for long enough are reported as offline.
        """
        loop = asyncio.get_running_loop()
        while not self.stopped:
            await asyncio.sleep(next_tick(loop.time(), SWEEP_EVERY_S, offset=self.epoch) - loop.time())
            now = self.clock.now()
            await self.residents.park(dict.fromkeys(self.shard_unacked.overdue(now - UNACKED_MAX_S)))
            self.acknowledge()
            self.failing.report_due(now)
            if self._wake_all_later and self.may_start():
                self._wake_all_later = False
                self.residents.wake_all()
            await self.residents.passivate(now - PASSIVATE_AFTER_S)
