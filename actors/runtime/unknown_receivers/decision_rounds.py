"""Decides in rounds: events for unknown receivers are turned away, or given to receivers that are known now.

A round reads on in the stream, lets the node catch up with the leader of the configurations, and then decides
about all events that came before it asked. The record says which events wait, and records what is decided.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from actors.aligned_timers import next_tick
from actors.errors import Unavailable
from actors.ids import UNKNOWN_RECEIVERS
from actors.machine import commands as c
from actors.machine.event import Event
from actors.machine.facts import Burial
from actors.machine.scheduling.view import Cutoff
from actors.machine.state import BURIALS_MAX, State
from actors.memory.cursor import Cursor
from actors.memory.unacked import ReceiverUnacked
from actors.ports import Snapshots
from actors.runtime.actor import ASK_AGAIN_S, Actor
from actors.runtime.environment import ActorEnvironment
from actors.runtime.live_state import LiveState
from actors.runtime.unknown_receivers.undecided_events import UndecidedEvent, UndecidedEvents

DECIDED_AT_ONCE = 64
"""Events that are turned away at a time."""
READ_AT_ONCE = 128
"""Events that one read of the stream returns at most."""
READS_A_ROUND = 8
"""Reads of the stream in one round at most."""
COMING_MAX = 256
"""Known receivers that may be loading because of found events; at this number, reading stops."""
NAMES_LENGTH_MAX = 32 << 10
"""Characters of all names that wait for a burial: one name can be as long as a subject."""
ROUND_PAUSE_S = 1.0
"""Pause between two rounds, so that a flood costs few flushes; after the first round it is 0.5 to 1.5 times
as long. The first round after a silence comes without delay.
"""
ROUND_OFFSETS = 64
"""Points in time within that pause, so that 64 shards have their rounds at different times.

A flood reaches all shards at once, and they share the question to the leader. If all their facts and burials
followed at once, they would delay the known receivers.
"""
BUSY_ROUND_PAUSE_S = 0.05
"""Pause between rounds if more than a page of events waits."""
DISCARD_AFTER_S = 60.0
"""If nothing could be buried for this long, the lowest events are discarded."""
PASSED_POSITIONS_MIN = 10_000
"""The record's position moves on if at least this many positions hold nothing that has to be decided."""

log = logging.getLogger(__name__)


class UnknownReceiverEnvironment(ActorEnvironment, Protocol):
    """The environment of the record, in addition to that of an actor."""

    snapshots: Snapshots
    unacked_max: int

    def knows(self, receiver: str) -> bool:
        """True if the receiver has a state, a configuration, or a removal of one."""
        ...


class DecidedRecord(Protocol):
    """The record whose events are decided in rounds; see `record.UnknownReceiversRecord`."""

    environment: UnknownReceiverEnvironment
    live: LiveState
    unacked: ReceiverUnacked
    cursor: Cursor
    undecided: UndecidedEvents
    cutoff: Cutoff | None

    @property
    def state(self) -> State: ...
    @property
    def turned_away_to(self) -> int: ...
    @property
    def has_unread(self) -> bool: ...

    def let_wait(self, receiver: str, event: Event) -> None:
        """Let an event wait until it is decided."""
        ...

    def give_to_known(self, *receivers: str) -> None:
        """Tell receivers that are known now where their events are."""
        ...


class DecisionRounds:
    """The rounds of one shard; `activate` brings an actor into memory.

    - `_coming`: known receivers that were told about events, and are being loaded.
    - `_buried_at`: when a dead letter was last stored, or none was owed.
    """

    __slots__ = (
        "_activate",
        "_buried_at",
        "_coming",
        "_cursor",
        "_decided_at",
        "_environment",
        "_record",
        "_tick_at",
        "_undecided",
        "_under_way",
    )  # fmt: skip

    def __init__(self, record: DecidedRecord, activate: Callable[[str], Actor]) -> None:
        self._record = record
        self._environment = record.environment
        self._undecided = record.undecided
        self._cursor = record.cursor
        self._activate = activate
        self._coming: list[Actor] = []
        self._under_way = False
        self._decided_at = self._tick_at = float("-inf")
        self._buried_at = self._environment.clock.now()

    def begin(self) -> None:
        """Decide from now on, unless that is being done."""
        if not self._under_way:
            self._under_way = True
            self._environment.spawn(self._run())

    def burial_ended(self) -> None:
        """Note that dead letters can be stored."""
        self._buried_at = self._environment.clock.now()

    async def _run(self) -> None:
        """Decide round after round, as long as any event waits."""
        while self._undecided or self._record.state.parked:
            busy = len(self._undecided) > DECIDED_AT_ONCE or self._record.has_unread
            due_at = self._decided_at + BUSY_ROUND_PAUSE_S if busy else self._tick_at
            await asyncio.sleep(max(0.0, due_at - self._environment.clock.now()))
            try:
                await self._decide()
            except Unavailable:
                await asyncio.sleep(ASK_AGAIN_S)
        self._under_way = False

    async def _decide(self) -> None:
        """Turn away the events that have come so far, or give them to receivers that are known after all."""
        self._decided_at = now = self._environment.clock.now()
        self._tick_at = next_tick(now, ROUND_PAUSE_S, offset=self._environment.epoch, offsets=ROUND_OFFSETS)
        self._release_resting()
        await self._read_on()
        covered = self._undecided.positions
        try:
            if covered:
                await self._environment.policies.catch_up()
        except Unavailable:
            if self._record.cutoff is None:
                raise
            covered = [each for each in covered if each <= self._record.cutoff.to]
        if self._environment.stopped:
            return
        self._record.give_to_known(*filter(self._environment.knows, self._undecided.receivers))
        self._turn_away(covered)
        self._pass_over()

    async def _read_on(self) -> None:
        """Read such events from the stream, as many as there is room for."""
        for _ in range(READS_A_ROUND):
            if not self._record.has_unread or not self._undecided.has_room(READ_AT_ONCE):
                return
            if len(self._coming) >= COMING_MAX:
                return
            cursor, up_to = self._cursor, self._cursor.seen_to
            found = await self._environment.backlog.read_all(cursor.read_to, up_to, READ_AT_ONCE)
            if self._environment.stopped:
                return
            self._accept_found([each for each in found.events if each[1].position <= up_to])
            if found.complete:
                cursor.note_read(max(cursor.read_to, up_to))

    def _accept_found(self, found: Iterable[tuple[str, Event]]) -> None:
        """Take events beyond those read before: no event of these names waits behind them."""
        for receiver, event in found:
            if receiver in self._undecided.receivers or not self._environment.knows(receiver):
                self._record.let_wait(receiver, event)
            else:
                self._pass_on(receiver, event)
            self._cursor.note_read(event.position)

    def _pass_on(self, receiver: str, event: Event) -> None:
        """Tell a known receiver about an event that was found; as a rule it knows that event already."""
        actor = self._activate(receiver)
        actor.note_in_stream(event.position, event.source)
        if not actor.loaded:
            self._coming.append(actor)

    def _release_resting(self) -> None:
        """Let receivers that were told about events, and have nothing to do, leave memory."""
        for actor in self._coming:
            if actor.is_resting:
                actor.active_at = float("-inf")
        self._coming = [each for each in self._coming if not each.loaded]

    def _turn_away(self, covered: list[int]) -> None:
        """Turn away the lowest events, if nothing below is held and there is room for their burials."""
        now = self._environment.clock.now()
        if not self._record.state.burials:
            self._buried_at = now  # Nothing had to be buried until now.
        stuck = now - self._buried_at > DISCARD_AFTER_S
        far = self._environment.shard_unacked.received - self._environment.unacked_max // 2
        behind = [each for each in covered if each < far] if stuck else []
        new = [
            Burial(position=event.position, reason=self._reason(event), receiver=event.receiver)
            for event in self._next(behind or covered, discard=bool(behind))
        ]
        if not new:
            return
        self._record.live.record(c.TurnAway(tuple(new), discarded=bool(behind)), now)
        if behind:
            log.warning(
                "unknown_receivers.discarded", extra={"count": len(new), "why": "nothing can be buried"}
            )
        for burial in new:
            self._undecided.drop(burial.position)
            self._record.unacked.release(burial.position, self._environment.recorder.index)

    def _reason(self, event: UndecidedEvent) -> str:
        if self._record.cutoff is not None and event.position <= self._record.cutoff.to:
            return self._record.cutoff.reason
        return "malformed" if event.malformed else "unknown_receiver"

    def _next(self, covered: list[int], *, discard: bool) -> Iterable[UndecidedEvent]:
        """The events that may be turned away now."""
        lowest_held = self._environment.shard_unacked.lowest_of_others(UNKNOWN_RECEIVERS)
        burials = () if discard else self._record.state.burials
        return self._undecided.next(
            covered,
            lowest_held=lowest_held,
            count_max=DECIDED_AT_ONCE if discard else min(DECIDED_AT_ONCE, BURIALS_MAX - len(burials)),
            length_max=NAMES_LENGTH_MAX - sum(len(each.receiver) for each in burials),
        )

    def _pass_over(self) -> None:
        """Move on if nothing has to be decided; if nothing at all is left, end as if nothing had waited.

        Events that were found for known receivers on the way are recorded by then: nothing below is held for
        them.
        """
        if not self._record.state.parked:
            return
        read_to = self._cursor.read_to
        clear_to = min(read_to, (self._undecided.lowest or read_to + 1) - 1)
        held = self._environment.shard_unacked.lowest_of_others(UNKNOWN_RECEIVERS)
        if not (self._undecided or self._record.has_unread) and held > clear_to:
            self._record.live.record(c.UnparkReceiver(), self._environment.clock.now())
        elif (clear_to := int(min(clear_to, held - 1))) >= self._record.turned_away_to + PASSED_POSITIONS_MIN:
            self._record.live.record(c.PassOver(clear_to), self._environment.clock.now())
