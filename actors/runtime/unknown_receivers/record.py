"""One bounded record per shard of the events for unknown receivers, instead of an actor for each receiver.

A producer may name thousands of receivers a second that never existed. An actor for each of them would cost
reads, facts and a snapshot that is kept for days. So events for unknown receivers are turned away together,
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
   without a state begins at that position and reads its own events from there (`Pending.is_behind_unknown`).
5. If nothing can be buried for a minute (the dead letters are full), events far below the highest received
   position are discarded, and that is recorded. If the stream is full, those below its horizon are evicted.
"""

import asyncio
from collections.abc import Callable, Collection

from actors.configuration.policy import Policy
from actors.errors import Unavailable
from actors.ids import UNKNOWN_RECEIVERS
from actors.machine import commands as c
from actors.machine.event import Event
from actors.machine.facts import Burial
from actors.machine.scheduling.view import Cutoff
from actors.machine.state import State
from actors.memory.cursor import Cursor
from actors.memory.unacked import ReceiverUnacked
from actors.runtime.actor import ASK_AGAIN_S, Actor
from actors.runtime.burials import Burials
from actors.runtime.live_state import LiveState
from actors.runtime.unknown_receivers.decision_rounds import DecisionRounds, UnknownReceiverEnvironment
from actors.runtime.unknown_receivers.undecided_events import UndecidedEvents

BURIED_AT_ONCE = 64
"""Events that are buried at a time."""


class UnknownReceiversRecord:
    """The events of one shard for unknown receivers.

    - `state`: the record.
    - `undecided`: events that are not decided; all others are in the stream, beyond the cursor.
    - `remembered`: the receivers that ever had a snapshot.

    `activate` brings an actor into memory.
    """

    __slots__ = ("_activate", "_rounds", "active_at", "burials", "cursor", "cutoff", "environment", "live",
                 "loaded", "ready", "receiver", "remembered", "unacked", "undecided")  # fmt: skip

    def __init__(self, environment: UnknownReceiverEnvironment, activate: Callable[[str], Actor]) -> None:
        self.receiver = UNKNOWN_RECEIVERS
        self.environment = environment
        self._activate = activate
        self.live = LiveState(UNKNOWN_RECEIVERS, environment)
        self.unacked = ReceiverUnacked(UNKNOWN_RECEIVERS, environment.shard_unacked)
        self.cursor = Cursor()
        self.burials = Burials()
        self.cutoff: Cutoff | None = None
        self.loaded = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.undecided = UndecidedEvents()
        self.remembered: set[str] = set()
        self.active_at = environment.clock.now()
        self._rounds = DecisionRounds(self, activate)

    @property
    def state(self) -> State:
        """The record as it is, confirmed or not."""
        return self.live.state

    @property
    def unacked_count(self) -> int:
        """Number of messages that are held for unknown receivers."""
        return len(self.unacked.messages)

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
        # Their next events must not overtake.
        self.give_to_known(*filter(self.environment.knows, self.undecided.receivers))
        if self.state.parked or not self.undecided.has_room(0):
            self.cursor.restore(self.turned_away_to, self.environment.shard_unacked.received)
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
            self.cursor.restore(max(self.cursor.read_to, self.turned_away_to), self.cursor.seen_to)
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
            if self.undecided or self.state.parked:
                self._rounds.begin()

    # ---- messages

    def note(self, receiver: str, event: Event) -> None:
        """Note a message for a name that is still unknown, or that has an earlier message here."""
        environment, position = self.environment, event.position
        now = self.active_at = environment.clock.now()
        if not self.unacked.add(position, now):
            return
        if self.loaded and position <= self.turned_away_to:
            self.unacked.release(position, environment.recorder.index)
        elif not self.loaded or not (self.has_unread or not self.undecided.has_room(1)):
            self.let_wait(receiver, event)
            self.wake()
        else:
            self.cursor.note_stored(position, event.source)
            self.park()
            self.wake()

    def let_wait(self, receiver: str, event: Event) -> None:
        """Let an event wait until it is decided."""
        self.undecided.add(receiver, event)
        if self.loaded:
            self.cursor.note_read(max(self.cursor.read_to, event.position))
            self.cursor.note_stored(event.position, event.source)

    def give_to_known(self, *receivers: str) -> None:
        """Tell receivers that are known now where their events are, so that none of these waits here."""
        for event in self.undecided.for_receivers(receivers):
            self.undecided.drop(event.position)
            self.unacked.release(event.position, 0)
            self._activate(event.receiver).note_in_stream(event.position, event.source)

    # ---- burials

    def _bury_next(self) -> None:
        """Bury the next events that, according to the confirmed journal, were turned away."""
        if self.burials.under_way or self.environment.stopped or not self.state.burials:
            return
        confirmed = {each.position for each in self.live.confirmed.burials}
        due = tuple(each for each in self.state.burials if each.position in confirmed)[:BURIED_AT_ONCE]
        if due:
            self.bury(due)

    def bury(self, burials: tuple[Burial, ...]) -> None:
        """Bury these dead letters, and then those that follow."""
        self.burials.under_way = True
        self.environment.spawn(self._bury(burials))

    async def _bury(self, burials: tuple[Burial, ...]) -> None:
        await self.burials.bury(self.live, burials)
        self.wake()
        self._rounds.burial_ended()
