"""The host of one shard: it keeps the actors in memory, and ties them to the shard's journal and inbox.

It lives as long as one ownership. Messages come in through `arrive`. The journal asks it for the `floor` when
it cuts a flush, and calls `confirmed` when facts are confirmed. Acks go out through the callable that the
host was given. Nothing here awaits anything but the ports.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

from msgspec.structs import replace

from actors.counters import DeliveryTotals
from actors.errors import Unavailable, Unusable
from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.bucket import Unclean
from actors.machine.event import Event
from actors.machine.state import State, is_left_over
from actors.memory.unacked import Bindings
from actors.news import News
from actors.policy import Policy
from actors.ports import Backlog, Clock, DeadLetterWriter, Policies, Recorded, Recorder, Sender, Snapshots
from actors.retention import Needed, Retention
from actors.runtime.actor import ASK_AGAIN_S, Actor
from actors.runtime.coalescing import next_beat
from actors.runtime.flow_control import FlowControl
from actors.runtime.live_state import UNCONFIRMED_MAX
from actors.runtime.unknown.unknown_receivers import UnknownReceivers

UNACKED_MAX_S = 2.0
SWEEP_EVERY_S = 0.5
PASSIVATE_AFTER_S = 60.0
LOADS_AT_ONCE = 32
"""Parked receivers of one shard whose snapshots are read at a time, if others leave it so many turns."""
CHECKED_IN_TURN_MAX = 1000
"""Receivers that are checked, without work for them, before other tasks have a turn."""
WOKEN_IN_TURN_MAX = 16
"""Receivers that are parked, begun or woken before other tasks have a turn; so many take a millisecond."""
log = logging.getLogger(__name__)


class Host:
    """The actors of one shard, under one claim.

    - `claim_position`: the last position of the deliveries when the shard was claimed.
    - `floor`: where its reading begins.
    - `needed`: no earlier owner needed anything below this position.
    - `within_lease`: asked before every first byte.
    - `ack`: takes reply subjects; `tell`: takes news about receivers for the log.
    - `changed`: confirmed states that no snapshot holds; `writing`: those that are being written.
    - `parked`: receivers that have to come back after a takeover; `away`: those not in memory yet.
    """

    def __init__(
        self, *, epoch: int, claimed_at: float, claim_position: int, unclean: Unclean | None, floor: int,
        needed: int, unacked_max: int, clock: Clock, recorder: Recorder, sender: Sender, backlog: Backlog,
        dead_letters: DeadLetterWriter, snapshots: Snapshots, policies: Policies, totals: DeliveryTotals,
        within_lease: Callable[[], bool], ack: Callable[[list[str]], None], hold: Callable[[bool], None],
        saturated: Callable[[], bool], refuse: Callable[[str], None], tell: Callable[[News], None],
    ) -> None:  # fmt: skip
        self.epoch = epoch
        self.claimed_at = claimed_at
        self.claim_position = claim_position
        self.unclean = unclean
        self.unacked_max = unacked_max
        self.clock = clock
        self.recorder = recorder
        self.sender = sender
        self.backlog = backlog
        self.dead_letters = dead_letters
        self.snapshots = snapshots
        self.policies = policies
        self.totals = totals
        self.ack = ack
        self.tell = tell
        self.flow_control = FlowControl(hold, saturated)
        self.bindings = Bindings(floor)
        self.retention = Retention()
        self.actors: dict[str, Actor] = {}
        self.unknown: UnknownReceivers | None = None
        self.changed: dict[str, State] = {}
        self.writing: dict[str, State] = {}
        self.parked: dict[str, float | None] = {}
        self.away: dict[str, float | None] = {}
        self.stopped = self.draining = self._held_up = False
        self.in_flight = 0
        self._within_lease = within_lease
        self.refuse = refuse
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._landed = asyncio.Event()
        self._cut, self._confirmed_floor = (0, floor), floor
        self._noted: dict[str, State] = {}
        self._needed = Needed(min(needed, floor + 1))

    # ---- beginning and end

    def begin(self, states: dict[str, State], parked: dict[str, float | None]) -> None:
        """Take over the actors that the journal's tail names, and those that have to come back by themselves.

        `parked` says when each wakes, if that is known. All of them come into memory gradually, so that
        others are not kept waiting; a receiver that gets an event or is asked for comes at once.
        """
        self.changed.update(states)
        self._noted.update(states)
        self.parked.update(parked)
        self.parked.update((each.receiver, None) for each in states.values() if each.unfinished)
        self.away.update(parked)
        if UNKNOWN_RECEIVERS in self.changed or UNKNOWN_RECEIVERS in parked:
            self.activate_unknown()  # It determines the position above which new receivers are opened.
        self.spawn(self._bring_back(list(states)))
        self.spawn(self._sweep())

    def stop(self) -> None:
        """Start, record and ack nothing more."""
        self.stopped = True
        self.flow_control.stop()
        for each in self._all():
            each.close()
        for task in self._tasks:
            task.cancel()
        for _, waiter in self._waiters:
            waiter.cancel()

    def go_on(self, epoch: int, within_lease: Callable[[], bool]) -> None:
        """Go on under another claim of this node, without a gap: memory and clock stay valid.

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
                    self._landed.clear()
                    await self._landed.wait()

    def landed(self) -> None:
        """Count an attempt that is over."""
        self.in_flight -= 1
        if self.draining:
            self._landed.set()
        self.flow_control.done(self.bindings.bound)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the shard. If it raises, that is a defect, and logged as such."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("actor.broken", exc_info=error)

    # ---- actors

    def _all(self) -> list[Actor | UnknownReceivers]:
        return [*self.actors.values(), *([self.unknown] if self.unknown else ())]

    def _present(self, receiver: str) -> Actor | UnknownReceivers | None:
        return self.unknown if receiver == UNKNOWN_RECEIVERS else self.actors.get(receiver)

    def _made(self, receiver: str) -> Actor | UnknownReceivers:
        """A new actor, or a new record of unknown names, without its state."""
        if receiver == UNKNOWN_RECEIVERS:
            self.unknown = UnknownReceivers(self)
            return self.unknown
        actor = self.actors[receiver] = Actor(receiver, self)
        return actor

    async def _bring_back(self, known: list[str]) -> None:
        """Load all actors that have something to do: those with a known state, then the parked ones."""
        for number, receiver in enumerate(known, 1):
            self._bring(receiver)
            if number % WOKEN_IN_TURN_MAX == 0:
                await asyncio.sleep(0)
        waiting: list[tuple[float, str]] = []
        for number, (receiver, wakes_at) in enumerate(list(self.away.items()), 1):
            heappush(waiting, (math.inf if wakes_at is None else wakes_at, receiver))
            if number % CHECKED_IN_TURN_MAX == 0:
                await asyncio.sleep(0)
        for _ in range(min(LOADS_AT_ONCE, len(waiting))):
            self.spawn(self._bring_back_parked(waiting))

    async def _bring_back_parked(self, waiting: list[tuple[float, str]]) -> None:
        """Read the snapshots of the parked receivers, the earliest wake-up first.

        A snapshot is used only if the actor was never in memory until then: it is still the actor's state.
        """
        while waiting and not self.stopped:
            due, receiver = heappop(waiting)
            if receiver in self.away:
                state = await self._read(receiver, due)
                if state is not None and receiver in self.away:
                    self._begin(self._present(receiver) or self._made(receiver), state)

    def activate(self, receiver: str) -> Actor:
        """The actor; if it was not in memory, its snapshot is being read."""
        actor = self.actors.get(receiver) or self._bring(receiver)
        assert isinstance(actor, Actor)
        return actor

    def activate_unknown(self) -> UnknownReceivers:
        """The record of unknown names; if it was not in memory, it is being read."""
        record = self.unknown or self._bring(UNKNOWN_RECEIVERS)
        assert isinstance(record, UnknownReceivers)
        return record

    def _bring(self, receiver: str) -> Actor | UnknownReceivers:
        """Load an actor, or the record of unknown names."""
        if (present := self._present(receiver)) is not None:
            return present
        made = self._made(receiver)
        state = self.changed.get(receiver) or self.writing.get(receiver)
        if state is not None:
            self._begin(made, state)
        else:
            self.spawn(self._load(made))
        return made

    def _begin(self, actor: Actor | UnknownReceivers, state: State) -> None:
        receiver = actor.receiver
        self.away.pop(receiver, None)
        self._noted[receiver] = state
        actor.touched_at = self.clock.now()
        actor.begin(state, self.policies.policy(receiver))

    async def _load(self, actor: Actor | UnknownReceivers) -> None:
        """Read the state of an actor that is needed, and begin it."""
        state = await self._read(actor.receiver, 0.0)
        if state is not None and not actor.loaded:
            self._begin(actor, state)

    async def _read(self, receiver: str, due: float) -> State | None:
        """The state from the actor's snapshot; None if the shard has ended meanwhile.

        An actor without a snapshot begins where the record of unknown names says, which is read by then.
        """
        while not self.stopped:
            try:
                state = await self.snapshots.load(receiver, due) or State(receiver=receiver)
            except Unavailable:
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            except Unusable as error:  # A snapshot that must not be guessed at.
                self.refuse(str(error))
                return None
            if not state.opened and self.unknown is not None and receiver != UNKNOWN_RECEIVERS:
                await asyncio.shield(self.unknown.ready)
            return None if self.stopped else state
        return None

    async def resident(self, receiver: str) -> Actor:
        """The actor, once it is in memory with its state. It is cancelled if the shard stops before."""
        while True:
            actor = self.activate(receiver)
            actor.touched_at = self.clock.now()
            await asyncio.shield(actor.ready)
            if self.actors.get(receiver) is actor:  # It may have left memory before this task was woken.
                return actor

    def arrive(self, receiver: str, event: Event, reply: str) -> None:
        """Give a message that the consumer handed out to its actor, or to the record of unknown names."""
        actor, unknown = self.actors.get(receiver), self.unknown
        # Earlier messages for the same name go first.
        if unknown is not None and receiver in unknown.undecided.receivers:
            unknown.take(receiver, event, reply)
        elif (actor is not None and actor.live.state.opened) or self.knows(receiver):
            (actor or self.activate(receiver)).arrive(event, reply)
        else:
            self.activate_unknown().take(receiver, event, reply)
        self.flow_control.came(self.bindings.bound)
        if self.bindings.bound > self.unacked_max // 2:
            self._park_largest()

    def knows(self, receiver: str) -> bool:
        """True if the receiver has a state, a configuration, or a removal of one."""
        if self.policies.heard_of(receiver) or receiver in self.changed or receiver in self.writing:
            return True
        if receiver in self.parked or (self.unknown is not None and receiver in self.unknown.remembered):
            return True
        actor = self.actors.get(receiver)  # It may be here only because a request named it.
        return actor is not None and not actor.is_blank

    def configured(self, receiver: str, policy: Policy | None) -> None:
        """Pass on a changed configuration; only a receiver that waits, or was removed, is activated."""
        actor, unknown = self.actors.get(receiver), self.unknown
        if unknown is not None and receiver in unknown.undecided.receivers:
            unknown.give_to_known(receiver)
        if actor is not None:
            actor.configure(policy)
        elif policy is None or receiver in self.parked or self.policies.removal(receiver) is not None:
            self.activate(receiver)
        elif unknown is not None and unknown.has_unread:
            self.activate(receiver)  # Its events there need not wait until they are found.

    def wake_all(self) -> None:
        """Wake all actors, because nothing holds the shard up any more."""
        self.spawn(self._wake_all())

    async def _wake_all(self) -> None:
        for number, each in enumerate(self._all(), 1):
            each.wake()
            if number % WOKEN_IN_TURN_MAX == 0:
                await asyncio.sleep(0)

    # ---- what actors ask

    @property
    def released_to(self) -> int:
        """The position up to which all events are released and decided, so none belongs to a new receiver."""
        floor, unknown = self._confirmed_floor, self.unknown
        return unknown.opens_above(floor) if unknown else floor

    @property
    def undecided_to(self) -> int:
        """The last position at which an event for an unknown name may be only in the stream; 0 if none is."""
        unknown = self.unknown
        return unknown.cursor.seen if unknown and unknown.state.parked else 0

    def within_lease(self) -> bool:
        """True if a first byte may leave now."""
        return not self.stopped and self._within_lease()

    def may_start(self) -> bool:
        """True if an attempt may take its token now."""
        if self.recorder.stalled or not self.within_lease():
            self._held_up = True
            return False
        return not self.draining

    def may_have_posted(self, state: State, first_bound: int) -> bool:
        """True if an owner that vanished may have posted an unrecorded request to this receiver."""
        if self.unclean is None:
            return False
        waits = bool(state.open) or state.parked or self.bindings.received < self.unclean.position
        return waits or 0 < first_bound <= self.unclean.position

    async def confirmed_to(self, index: int) -> None:
        """Return once the journal holds the fact with that index; cancelled if the shard stops before."""
        if self.recorder.confirmed_index < index:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((index, waiter))
            await waiter

    # ---- what the journal says

    def floor(self, index: int) -> int:
        """The end of the unbroken run of messages released by the facts up to `index`."""
        floor = self.bindings.floor(index)
        self._cut = (index, floor)
        return floor

    def confirmed(self, entries: Sequence[Recorded]) -> None:
        """The journal has confirmed these facts: ack their messages, and wake the actors that waited."""
        index = self.recorder.confirmed_index
        before = index - len(entries)
        touched: dict[str, Actor | UnknownReceivers] = {}
        full: set[str] = set()
        for entry in entries:
            fact, state = entry.fact, entry.state
            receiver = fact.receiver
            actor = self.actors.get(receiver) or self._present(receiver)
            if actor is not None:
                if actor.live.unconfirmed >= UNCONFIRMED_MAX:
                    full.add(receiver)
                actor.live.confirm(fact, state)
                touched[receiver] = actor
            self.changed[receiver] = self._noted[receiver] = state
        if self._cut[0] <= index:
            self._confirmed_floor = self._cut[1]
        for receiver, actor in touched.items():
            self._note_parked(receiver, actor.live.confirmed)
            # Events that were turned away are buried once that is confirmed.
            if actor.live.barrier > before or receiver in full or actor is self.unknown:
                actor.wake()
        self.acknowledge()
        due = [waiter for each, waiter in self._waiters if each <= index and not waiter.done()]
        self._waiters = [(each, waiter) for each, waiter in self._waiters if each > index]
        for waiter in due:
            waiter.set_result(None)
        if self._held_up:
            self._held_up = False
            self.wake_all()

    def _note_parked(self, receiver: str, state: State) -> None:
        if state.unfinished:
            self.parked.setdefault(receiver, None)
        elif self.parked:
            self.parked.pop(receiver, None)

    def acknowledge(self) -> None:
        """Ack the messages that the confirmed facts release."""
        if replies := self.bindings.confirmed(self.recorder.confirmed_index):
            self.ack(replies)

    # ---- snapshots and memory

    def take_changed(self) -> dict[str, State]:
        """The confirmed states that no snapshot holds yet; `written` or `give_back` must follow."""
        self.changed, self.writing = {}, self.changed
        return self.writing

    def forgettable(self, states: dict[str, State]) -> list[str]:
        """The receivers among these whose states need not be remembered."""
        floor, now = self._confirmed_floor, self.clock.now()
        return [receiver for receiver, state in states.items() if is_left_over(state, floor, now)]

    def written(self) -> None:
        """Forget the states that were taken, since the snapshots hold them."""
        if self.unknown is not None:
            self.unknown.remembered.update(self.writing)
        self.writing = {}

    def give_back(self) -> None:
        """Take the states back, since the snapshots may not hold them."""
        self.changed, self.writing = self.writing | self.changed, {}

    def needed(self) -> Needed:
        """The lowest stream position that this shard still needs.

        It never falls: a message that is not needed once is never needed again. It does not rise either as
        long as one of the receivers that have to come back is not in memory.
        """
        self._note_retention()
        if not self.away:
            lowest = self.retention.lowest(self._confirmed_floor)
            self._needed = replace(lowest, position=max(self._needed.position, lowest.position))
        return self._needed

    def _note_retention(self) -> None:
        noted, self._noted = self._noted, {}
        for state in noted.values():
            self.retention.note(state)

    def evict(self, below: int) -> None:
        """Make the events that wait below that position dead letters: the stream has no room for them."""
        self._note_retention()
        for receiver in self.retention.below(below):
            actor = self._bring(receiver)
            needed = actor.state.needed_position if actor.loaded else None
            if needed is not None and needed < below:
                actor.give_up_to(below - 1, "evicted")

    async def _sweep(self) -> None:
        """Twice a second park what has been held too long, ack what is released, and drop resting actors."""
        loop = asyncio.get_running_loop()
        while not self.stopped:
            await asyncio.sleep(next_beat(loop.time(), SWEEP_EVERY_S, lane=self.epoch) - loop.time())
            now = self.clock.now()
            for number, receiver in enumerate(dict.fromkeys(self.bindings.overdue(now - UNACKED_MAX_S)), 1):
                actor = self._present(receiver)
                if actor is not None and actor.loaded:
                    actor.park()
                    actor.wake()
                if number % WOKEN_IN_TURN_MAX == 0:
                    await asyncio.sleep(0)
            self.acknowledge()
            if self._held_up and self.may_start():
                self._held_up = False
                self.wake_all()
            await self._passivate(now - PASSIVATE_AFTER_S)

    async def _passivate(self, before: float) -> None:
        for number, (receiver, actor) in enumerate(list(self.actors.items()), 1):
            kept = receiver in self.changed or receiver in self.writing
            if actor.touched_at < before and actor.resting and not kept:
                actor.close()
                del self.actors[receiver]
            if number % CHECKED_IN_TURN_MAX == 0:
                await asyncio.sleep(0)

    def _park_largest(self) -> None:
        """Park the receiver that holds the most messages, since the inbox is half full."""
        largest = max(self._all(), key=lambda each: each.bound_count if each.loaded else 0)
        if largest.loaded and largest.bound_count:
            largest.park()
            largest.wake()
