"""The residents of a shard: the actors that are in memory, and how the others are loaded and leave.

An actor is loaded when it gets an event or is asked for. After a takeover, all actors that have something
to do are loaded gradually, so that others are not kept waiting. An actor that rests leaves.
"""

import asyncio
import math
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Protocol

from actors.configuration.policy import Policy
from actors.errors import Unavailable, Unusable
from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.state import State
from actors.memory.unsaved_states import UnsavedStates
from actors.runtime.actor import ASK_AGAIN_S, Actor
from actors.runtime.live_state import LiveState
from actors.runtime.unknown_receivers.decision_rounds import UnknownReceiverEnvironment
from actors.runtime.unknown_receivers.record import UnknownReceiversRecord

LOADS_AT_ONCE = 32
"""Parked receivers of one shard whose snapshots are read at a time, if other shards leave room for them."""
CHECKED_IN_TURN_MAX = 1000
"""Receivers that are checked, without work for them, before other tasks have a turn."""
WOKEN_IN_TURN_MAX = 16
"""Receivers that are parked, begun or woken before other tasks have a turn; that many take a millisecond."""


class ResidentPorts(UnknownReceiverEnvironment, Protocol):
    """The environment of the residents, in addition to that of each of them.

    - `unsaved`: the confirmed states that no snapshot holds.
    """

    unsaved: UnsavedStates

    def note_state(self, state: State) -> None:
        """Record a state that was loaded."""
        ...

    def known_policy(self, receiver: str) -> Policy | None:
        """The configuration in force, as far as it is certain."""
        ...


class Resident(Protocol):
    """An actor, or the record of unknown receivers.

    - `loaded`: its state is known.
    - `unacked_count`: number of messages that are held for it.
    - `active_at`: when it last had something to do.
    """

    receiver: str
    live: LiveState
    loaded: bool
    active_at: float

    @property
    def unacked_count(self) -> int: ...
    @property
    def state(self) -> State: ...

    def restore(self, state: State, policy: Policy | None) -> None:
        """Continue from its state, which is known now."""
        ...

    def wake(self) -> None:
        """Do the next steps."""
        ...

    def park(self) -> None:
        """Drop the waiting events from memory, and record that; they stay in the stream."""
        ...

    def give_up_to(self, position: int, reason: str) -> None:
        """Make all events up to `position` that are not settled dead letters."""
        ...

    def close(self) -> None:
        """Stop waiting; it leaves memory."""
        ...


class Residents:
    """The actors in memory, and the record of unknown receivers, which is one of them.

    - `actors`: by receiver.
    - `unknown`: the record, if it is in memory.
    - `not_loaded`: the receivers that are still to be loaded after the takeover; when each wakes, if known.
    """

    def __init__(self, host: ResidentPorts) -> None:
        self.actors: dict[str, Actor] = {}
        self.unknown: UnknownReceiversRecord | None = None
        self.not_loaded: dict[str, float | None] = {}
        self._host = host

    def start(self, receivers: list[str], parked: dict[str, float | None]) -> None:
        """Load these receivers, whose states are known, and then the parked ones, the earliest due first."""
        self.not_loaded.update(parked)
        if UNKNOWN_RECEIVERS in receivers or UNKNOWN_RECEIVERS in parked:
            self.activate_unknown()  # It determines the position above which new receivers are opened.
        self._host.spawn(self._load_after_takeover(receivers))

    def stop(self) -> None:
        """End every wait for an actor."""
        for each in self.all():
            each.close()

    def all(self) -> list[Resident]:
        """All residents: the actors in memory, and the record of unknown receivers."""
        return [*self.actors.values(), *([self.unknown] if self.unknown else ())]

    def find(self, receiver: str) -> Resident | None:
        """The actor, or the record of unknown receivers, if it is in memory."""
        return self.unknown if receiver == UNKNOWN_RECEIVERS else self.actors.get(receiver)

    # ---- loading

    def activate(self, receiver: str) -> Actor:
        """The actor; if it was not in memory, its snapshot is being read."""
        actor = self.actors.get(receiver)
        if actor is None:
            actor = self._new_actor(receiver)
            self._restore_or_load(actor)
        return actor

    def activate_unknown(self) -> UnknownReceiversRecord:
        """The record of unknown receivers; if it was not in memory, it is being read."""
        record = self.unknown
        if record is None:
            record = self._new_unknown()
            self._restore_or_load(record)
        return record

    def activate_any(self, receiver: str) -> Resident:
        """The resident of that name; if it was not in memory, it is being loaded."""
        return self.activate_unknown() if receiver == UNKNOWN_RECEIVERS else self.activate(receiver)

    async def when_loaded(self, receiver: str) -> Actor:
        """The actor, once it is in memory with its state. It is cancelled if the shard stops before."""
        while True:
            actor = self.activate(receiver)
            actor.active_at = self._host.clock.now()
            await asyncio.shield(actor.ready)
            if self.actors.get(receiver) is actor:  # It may have left memory before this task was woken.
                return actor

    def _new_actor(self, receiver: str) -> Actor:
        actor = self.actors[receiver] = Actor(receiver, self._host)
        return actor

    def _new_unknown(self) -> UnknownReceiversRecord:
        record = self.unknown = UnknownReceiversRecord(self._host, self.activate)
        return record

    def _new(self, receiver: str) -> Resident:
        return self._new_unknown() if receiver == UNKNOWN_RECEIVERS else self._new_actor(receiver)

    def _restore_or_load(self, resident: Resident) -> None:
        if (state := self._host.unsaved.get(resident.receiver)) is not None:
            self._restore(resident, state)
        else:
            self._host.spawn(self._load(resident))

    def _restore(self, resident: Resident, state: State) -> None:
        self.not_loaded.pop(resident.receiver, None)
        self._host.note_state(state)
        resident.active_at = self._host.clock.now()
        resident.restore(state, self._host.known_policy(resident.receiver))

    async def _load(self, resident: Resident) -> None:
        """Read the state of a resident that is needed, and restore it."""
        state = await self._read(resident.receiver, 0.0)
        if state is not None and not resident.loaded:
            self._restore(resident, state)

    async def _read(self, receiver: str, due: float) -> State | None:
        """The state from the actor's snapshot; None if the shard has ended meanwhile.

        Without a snapshot, an actor begins at the position in the record of unknown receivers, so that record
        is loaded first.
        """
        host = self._host
        while not host.stopped:
            try:
                state = await host.snapshots.load(receiver, due) or State(receiver=receiver)
            except Unavailable:
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            except Unusable as error:  # A snapshot that must not be guessed at.
                host.refuse(str(error))
                return None
            if not state.opened and self.unknown is not None and receiver != UNKNOWN_RECEIVERS:
                await asyncio.shield(self.unknown.ready)
            return None if host.stopped else state
        return None

    # ---- after a takeover

    async def _load_after_takeover(self, receivers: list[str]) -> None:
        """Load all actors that have something to do: those with a known state, then the parked ones."""
        for number, receiver in enumerate(receivers, 1):
            self.activate_any(receiver)
            if number % WOKEN_IN_TURN_MAX == 0:
                await asyncio.sleep(0)
        waiting: list[tuple[float, str]] = []
        for number, (receiver, wakes_at) in enumerate(list(self.not_loaded.items()), 1):
            heappush(waiting, (math.inf if wakes_at is None else wakes_at, receiver))
            if number % CHECKED_IN_TURN_MAX == 0:
                await asyncio.sleep(0)
        for _ in range(min(LOADS_AT_ONCE, len(waiting))):
            self._host.spawn(self._load_parked(waiting))

    async def _load_parked(self, waiting: list[tuple[float, str]]) -> None:
        """Read the snapshots of the parked receivers, the earliest wake-up first.

        A snapshot is used only if the actor was never in memory until then: it is still the actor's state.
        """
        while waiting and not self._host.stopped:
            due, receiver = heappop(waiting)
            if receiver in self.not_loaded:
                state = await self._read(receiver, due)
                if state is not None and receiver in self.not_loaded:
                    self._restore(self.find(receiver) or self._new(receiver), state)

    # ---- in memory

    def wake_all(self) -> None:
        """Wake all actors, because nothing holds the shard up any more."""
        self._host.spawn(self._wake_all())

    async def _wake_all(self) -> None:
        for number, each in enumerate(self.all(), 1):
            each.wake()
            if number % WOKEN_IN_TURN_MAX == 0:
                await asyncio.sleep(0)

    async def note_outage(self) -> None:
        """Let the actors record that the time of our outage is not failing time of their receivers."""
        for number, each in enumerate(list(self.actors.values()), 1):
            if each.loaded:
                each.live.note_outage()
            if number % CHECKED_IN_TURN_MAX == 0:
                await asyncio.sleep(0)

    async def park(self, receivers: Iterable[str]) -> None:
        """Park these receivers, if they are in memory."""
        for number, receiver in enumerate(receivers, 1):
            actor = self.find(receiver)
            if actor is not None and actor.loaded:
                actor.park()
                actor.wake()
            if number % WOKEN_IN_TURN_MAX == 0:
                await asyncio.sleep(0)

    def park_largest(self) -> None:
        """Park the receiver that holds the most messages."""
        largest = max(self.all(), key=lambda each: each.unacked_count if each.loaded else 0)
        if largest.loaded and largest.unacked_count:
            largest.park()
            largest.wake()

    async def passivate(self, before: float) -> None:
        """Remove resting actors that had nothing to do since then and whose states are in snapshots."""
        for number, (receiver, actor) in enumerate(list(self.actors.items()), 1):
            if actor.active_at < before and actor.is_resting and self._host.unsaved.get(receiver) is None:
                actor.close()
                del self.actors[receiver]
            if number % CHECKED_IN_TURN_MAX == 0:
                await asyncio.sleep(0)
