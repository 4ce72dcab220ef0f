"""One bounded record per shard of the events for unknown receivers, instead of an actor for each receiver.

A producer may name thousands of receivers a second that never existed. An actor for each of them would cost
reads, facts and a snapshot that is kept for days. So the events for unknown names are turned away together,
after those for known receivers:

1. The leader of the configurations is asked once for all events that have come until then, and the snapshots
   are listed once. A receiver that is configured, or ever had an actor, learns where its events are, and
   reads them from the stream, in order, before any later one.
2. The other events are turned away, the lowest positions first, and only if nothing below them is held for an
   actor. So this fact and those before it release everything up to the highest of them, and one position is
   all that has to be recorded. A name that is put afterwards is opened above it (`Host.released_to`), and an
   event that comes again after a crash or a reset is recognised by it.
3. At most `BURIALS_MAX` events wait for their burial, which follows the confirmed fact. The others wait in
   the stream, without their bodies.
4. No known receiver waits for them: after 2 s, or if more than `WAITING_MAX` of them wait, the record
   *parks*, like an actor. Then they are only in the stream, and events that the record cannot hold are found
   again by reading the whole shard from the record's position. Until all of them are decided, a receiver
   without a state begins at that position and reads its own events from there (`Pending.behind_unknown`).
5. If nothing can be buried for a minute (the dead letters are full), events far below the highest received
   position are discarded, and that is recorded. If the stream is full, those below its horizon are evicted.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from actors.beats import next_beat
from actors.errors import Unavailable
from actors.ids import UNKNOWN_RECEIVERS
from actors.machine import commands as c
from actors.machine.event import Event
from actors.machine.facts import Burial
from actors.machine.scheduling.view import Cutoff
from actors.machine.state import BURIALS_MAX, State
from actors.memory.cursor import Cursor
from actors.memory.unacked import Unacked
from actors.policy import Policy
from actors.ports import Snapshots
from actors.runtime.actor import ASK_AGAIN_S, Actor
from actors.runtime.burials import Burials
from actors.runtime.environment import ActorEnvironment
from actors.runtime.live_state import LiveState
from actors.runtime.unknown_receivers.undecided_events import UndecidedEvent, UndecidedEvents

DECIDED_AT_ONCE = 64
"""Events that are turned away, or buried, at a time."""
WAITING_MAX = 1024
"""Events whose position and name are held; of further ones only the last position is known."""
READ_AT_ONCE = 128
READS_A_TURN = 8
COMING_MAX = 256
"""Known receivers that may be coming into memory because of found events; at this number, reading stops."""
NAMES_LENGTH_MAX = 32 << 10
"""Characters of all names that wait for a burial: one name can be as long as a subject."""
TURN_PAUSE_S = 1.0
"""Pause between two turns, so that a flood costs few flushes; after the first turn it is 0.5 to 1.5 times as
long. The first turn after a silence comes without delay.
"""
TURN_LANES = 64
"""Points in time within that pause, so that 64 shards have their turns at different times.

A flood reaches all shards at once, and they share the question to the leader. If all their facts and burials
followed at once, they would delay the known receivers.
"""
BUSY_TURN_PAUSE_S = 0.05
"""Pause between turns if more than a page of events waits."""
LEFT_BEHIND_S = 60.0
"""If nothing could be buried for this long, the lowest events are discarded."""
PASS_OVER_MIN = 10_000
"""The record's position moves on if at least this many positions hold nothing that has to be decided."""

log = logging.getLogger(__name__)


class UnknownReceiverEnvironment(ActorEnvironment, Protocol):
    """The environment of the record, in addition to that of an actor."""

    snapshots: Snapshots
    unacked_max: int

    def knows(self, receiver: str) -> bool:
        """True if the receiver has a state, a configuration, or a removal of one."""
        ...


class UnknownReceivers:
    """The events of one shard for unknown names.

    - `state`: the record.
    - `undecided`: events that are not decided; all others are in the stream, beyond the cursor.
    - `remembered`: the receivers that ever had a snapshot.

    `activate` brings an actor into memory.
    """

    __slots__ = (
        "_activate",
        "_beat_at",
        "_buried_at",
        "_coming",
        "_turned_at",
        "_turning",
        "active_at",
        "burials",
        "cursor",
        "cutoff",
        "environment",
        "live",
        "loaded",
        "ready",
        "receiver",
        "remembered",
        "unacked",
        "undecided",
    )  # fmt: skip

    def __init__(self, environment: UnknownReceiverEnvironment, activate: Callable[[str], Actor]) -> None:
        self.receiver = UNKNOWN_RECEIVERS
        self.environment = environment
        self._activate = activate
        self.live = LiveState(UNKNOWN_RECEIVERS, environment)
        self.unacked = Unacked(UNKNOWN_RECEIVERS, environment.bindings)
        self.cursor = Cursor()
        self.burials = Burials()
        self.cutoff: Cutoff | None = None
        self.loaded = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.undecided = UndecidedEvents()
        self.remembered: set[str] = set()
        self.active_at = self._buried_at = environment.clock.now()
        self._coming: list[Actor] = []
        self._turning = False
        self._turned_at = self._beat_at = float("-inf")

    @property
    def state(self) -> State:
        """The record as it is, confirmed or not."""
        return self.live.state

    @property
    def bound_count(self) -> int:
        """Number of messages that are held for unknown names."""
        return len(self.unacked.bound)

    @property
    def turned_away_to(self) -> int:
        """The position up to which all were turned away. Nothing is held for any receiver up to there."""
        return self.state.frontier.position

    def opens_above(self, floor: int) -> int:
        """The position above which a receiver without a state begins; `floor` is the confirmed one."""
        return self.turned_away_to if self.state.parked else max(floor, self.turned_away_to)

    def has_recorded(self, positions: Collection[int], floor: int) -> bool:
        """True if these were turned away, by the confirmed record, and do not wait for their burials."""
        recorded, buried = self.live.confirmed, {each.position for each in self.state.burials}
        to = recorded.frontier.position
        if not (self.state.parked or recorded.parked):
            to = max(floor, to)
        return self.loaded and all(each <= to and each not in buried for each in positions)

    @property
    def has_unread(self) -> bool:
        """True if the stream has some of these events, and nothing else is known about them."""
        return self.cursor.has_unread

    # ---- what an actor would do

    def restore(self, state: State, policy: Policy | None) -> None:
        """Take the record, which is used once the receivers with a snapshot are known, too."""
        self.live.restore(state, None)
        self.environment.spawn(self._begin())

    async def _begin(self) -> None:
        while not self.environment.stopped:
            try:
                self.remembered.update(await self.environment.snapshots.receivers())
            except Unavailable:
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            break
        self.loaded = True
        self.cursor.restore(self.turned_away_to, 0)
        for position in self.undecided.up_to(self.turned_away_to):
            self.undecided.drop(position)  # It was turned away before the record was read.
            self.unacked.release(position, self.environment.recorder.index)
        self.give_to_known(
            *filter(self.environment.knows, self.undecided.receivers)
        )  # Their next events must not overtake.
        if self.state.parked or len(self.undecided) > WAITING_MAX:
            self.cursor.restore(self.turned_away_to, self.environment.bindings.received)
            self.undecided.clear()
            self.park()
        else:
            self.cursor.restore(self.undecided.highest or self.turned_away_to, 0)
        if not self.ready.done():
            self.ready.set_result(None)
        self.wake()

    def park(self) -> None:
        """Hold no message any longer, and record that; the events stay in the stream."""
        if not self.state.parked:
            self.live.record(c.ParkReceiver(None, self.environment.released_to), self.environment.clock.now())
            self.cursor.parked_index = self.environment.recorder.index
            self.cursor.restore(max(self.cursor.read_to, self.turned_away_to), self.cursor.seen)
        self.unacked.release_all(self.cursor.parked_index)

    def give_up_to(self, position: int, reason: str) -> None:
        """Make all events that are not decided up to `position` dead letters, even if the name is known."""
        self.cutoff = Cutoff(position, reason)
        self.wake()

    def close(self) -> None:
        """End every wait for the record; its tasks end with the shard."""
        self.ready.cancel()

    def wake(self) -> None:
        """Do what there is to do, because something happened."""
        if self.loaded and not self.environment.stopped:
            self._bury_next()
            if (self.undecided or self.state.parked) and not self._turning:
                self._turning = True
                self.environment.spawn(self._turns())

    # ---- messages

    def note(self, receiver: str, event: Event) -> None:
        """Note a message for a name that is still unknown, or that has an earlier message here."""
        environment, position = self.environment, event.position
        now = self.active_at = environment.clock.now()
        if not self.unacked.bind(position, now):
            return
        if self.loaded and position <= self.turned_away_to:
            self.unacked.release(position, environment.recorder.index)
        elif not self.loaded or not (self.has_unread or len(self.undecided) >= WAITING_MAX):
            self._wait_for(receiver, event)
            self.wake()
        else:
            self.cursor.saw(position, event.source)
            self.park()
            self.wake()

    def _wait_for(self, receiver: str, event: Event) -> None:
        self.undecided.add(receiver, event)
        if self.loaded:
            self.cursor.arrived(max(self.cursor.read_to, event.position))
            self.cursor.saw(event.position, event.source)

    def give_to_known(self, *receivers: str) -> None:
        """Tell receivers that are known now where their events are, so that none of these waits here."""
        for event in self.undecided.for_receivers(receivers):
            self.undecided.drop(event.position)
            self.unacked.release(event.position, 0)
            self._activate(event.receiver).note_in_stream(event.position, event.source)

    # ---- turns

    async def _turns(self) -> None:
        """Take turns as long as any event waits."""
        while self.undecided or self.state.parked:
            busy = len(self.undecided) > DECIDED_AT_ONCE or self.has_unread
            due_at = self._turned_at + BUSY_TURN_PAUSE_S if busy else self._beat_at
            await asyncio.sleep(max(0.0, due_at - self.environment.clock.now()))
            try:
                await self._turn()
            except Unavailable:
                await asyncio.sleep(ASK_AGAIN_S)
        self._turning = False

    async def _turn(self) -> None:
        """Turn away the events that have come so far, or give them to receivers that are known after all."""
        self._turned_at = now = self.environment.clock.now()
        self._beat_at = next_beat(now, TURN_PAUSE_S, lane=self.environment.epoch, lanes=TURN_LANES)
        self._release_resting()
        await self._read_on()
        covered = self.undecided.positions
        try:
            if covered:
                await self.environment.policies.catch_up()
        except Unavailable:
            if self.cutoff is None:
                raise
            covered = [each for each in covered if each <= self.cutoff.to]
        if self.environment.stopped:
            return
        self.give_to_known(*filter(self.environment.knows, self.undecided.receivers))
        self._turn_away(covered)
        self._pass_over()

    async def _read_on(self) -> None:
        """Read such events from the stream, as many as there is room for."""
        for _ in range(READS_A_TURN):
            if not self.has_unread or len(self.undecided) > WAITING_MAX - READ_AT_ONCE:
                return
            if len(self._coming) >= COMING_MAX:
                return
            cursor, up_to = self.cursor, self.cursor.seen
            found = await self.environment.backlog.read_all(cursor.read_to, up_to, READ_AT_ONCE)
            if self.environment.stopped:
                return
            self._accept_found([each for each in found.events if each[1].position <= up_to])
            if found.complete:
                cursor.arrived(max(cursor.read_to, up_to))

    def _accept_found(self, found: Iterable[tuple[str, Event]]) -> None:
        """Take events beyond those read before: no event of these names waits behind them."""
        for receiver, event in found:
            if receiver in self.undecided.receivers or not self.environment.knows(receiver):
                self._wait_for(receiver, event)
            else:
                self._pass_on(receiver, event)
            self.cursor.arrived(event.position)

    def _pass_on(self, receiver: str, event: Event) -> None:
        """Tell a known receiver about an event that was found; as a rule it knows that event already."""
        actor = self._activate(receiver)
        actor.note_in_stream(event.position, event.source)
        if not actor.loaded:
            self._coming.append(actor)

    def _release_resting(self) -> None:
        """Let receivers that were told about events, and have nothing to do, leave memory."""
        for actor in self._coming:
            if actor.resting:
                actor.active_at = float("-inf")
        self._coming = [each for each in self._coming if not each.loaded]

    def _turn_away(self, covered: list[int]) -> None:
        """Turn away the lowest events, if nothing below is held and there is room for their burials."""
        now = self.environment.clock.now()
        if not self.state.burials:
            self._buried_at = now  # Nothing had to be buried until now.
        stuck = now - self._buried_at > LEFT_BEHIND_S
        far = self.environment.bindings.received - self.environment.unacked_max // 2
        behind = [each for each in covered if each < far] if stuck else []
        new = [
            Burial(position=event.position, reason=self._reason(event), receiver=event.receiver)
            for event in self._next(behind or covered, discard=bool(behind))
        ]
        if not new:
            return
        self.live.record(c.TurnAway(tuple(new), discarded=bool(behind)), now)
        if behind:
            log.warning(
                "unknown_receivers.discarded", extra={"count": len(new), "why": "nothing can be buried"}
            )
        for burial in new:
            self.undecided.drop(burial.position)
            self.unacked.release(burial.position, self.environment.recorder.index)

    def _reason(self, event: UndecidedEvent) -> str:
        if self.cutoff is not None and event.position <= self.cutoff.to:
            return self.cutoff.reason
        return "malformed" if event.malformed else "unknown_receiver"

    def _next(self, covered: list[int], *, discard: bool) -> Iterable[UndecidedEvent]:
        """The events that may be turned away now."""
        lowest_held = self.environment.bindings.lowest_but(UNKNOWN_RECEIVERS)
        burials = () if discard else self.state.burials
        return self.undecided.next(
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
        if not self.state.parked:
            return
        read_to = self.cursor.read_to
        clear_to = min(read_to, (self.undecided.lowest or read_to + 1) - 1)
        held = self.environment.bindings.lowest_but(UNKNOWN_RECEIVERS)
        if not (self.undecided or self.has_unread) and held > clear_to:
            self.live.record(c.UnparkReceiver(), self.environment.clock.now())
        elif (clear_to := int(min(clear_to, held - 1))) >= self.turned_away_to + PASS_OVER_MIN:
            self.live.record(c.PassOver(clear_to), self.environment.clock.now())

    # ---- burials

    def _bury_next(self) -> None:
        """Bury the next events that, according to the confirmed journal, were turned away."""
        if self.burials.under_way or self.environment.stopped or not self.state.burials:
            return
        confirmed = {each.position for each in self.live.confirmed.burials}
        due = tuple(each for each in self.state.burials if each.position in confirmed)[:DECIDED_AT_ONCE]
        if due:
            self.bury(due)

    def bury(self, burials: tuple[Burial, ...]) -> None:
        """Bury these dead letters, and then those that follow."""
        self.burials.under_way = True
        self.environment.spawn(self._bury(burials))

    async def _bury(self, burials: tuple[Burial, ...]) -> None:
        await self.burials.bury(self.live, burials)
        self.wake()
        self._buried_at = self.environment.clock.now()
