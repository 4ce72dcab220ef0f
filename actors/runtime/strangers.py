"""Names that nobody knows: one bounded record for each shard, in the place of an actor for each of them.

Anybody who may publish may name thousands of receivers a second that never were. An actor for each would
cost reads, facts and a snapshot that is kept for days. So their events, the *strangers'*, are turned away
together, behind what is for known receivers:

1. The leader of the configurations is asked once for all that have come until then, and the snapshots are
   listed once: whoever is configured, or ever had an actor, gets its events, in order, before any later one.
2. The others are turned away, the lowest positions first, and only those below which nothing is held for an
   actor. So everything up to the highest of them is released by that fact and those before it: one position
   is record enough. A name that is put afterwards is opened above it (`Host.released_to`), and what comes
   again after a crash or a reset is recognised by it.
3. At most `BURIALS_MAX` wait for their burial, which follows the confirmed fact. The others wait in the
   stream, unacked and without their bodies. If nothing can be buried (the dead letters are full) and they
   hold half of what the shard may have unacked, they are discarded, on record: a known receiver must not wait
   for them. So are those that lie as far below what was received, after a minute: they hold the floor, and
   with it what a takeover reads again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct

from actors.ids import UNKNOWN
from actors.machine import commands as c
from actors.machine.event import Event
from actors.machine.expiry import BURIALS_MAX
from actors.machine.facts import Burial, Fact
from actors.machine.state import State
from actors.policy import Policy
from actors.ports import Snapshots, Unavailable
from actors.runtime.home import Home
from actors.runtime.shell import ASK_AGAIN_S, Shell
from actors.runtime.unacked import Binding

PAGE = 64
"""How many are turned away at once, or buried."""
LOOKED_AT_MAX = 1024
BODIES_MAX = 512 << 10
"""Bytes of events that are held in case that their receiver turns out to be known; others are read again."""
NAMES_LENGTH_MAX = 32 << 10
"""Characters of all names that wait for a burial: one can be as long as a subject."""
READS_AT_ONCE = 16
PAUSE_S = 1.0
"""Between two turns. A flood is worth few flushes so; the first after a silence waits for nothing."""
HURRY_S = 0.05
"""The same, where more than a page waits."""
STUCK_S = 10.0
"""Nothing was buried for so long, though something is to be."""
LEFT_BEHIND_S = 60.0
"""The same: then those are discarded, too, that lie far below what the shard has received."""

log = logging.getLogger(__name__)


class Door(Home, Protocol):
    """The surroundings of the record, beyond those of an actor."""

    snapshots: Snapshots
    unacked_max: int

    def knows(self, receiver: str) -> bool:
        """Tells whether there is an actor, a configuration, or a removal of one."""
        ...

    def activate(self, receiver: str) -> Shell:
        """The actor in memory; if it was not, its snapshot is being read."""
        ...


class _Stranger(Struct):
    """A message that waits. `event` is None where it has to be read again; `gone`: it could not be."""

    receiver: str
    binding: Binding
    event: Event | None
    malformed: bool
    gone: bool = False


class Strangers(Shell):
    """The events of one shard that are for nobody: its state is the record, `waiting` is by position."""

    __slots__ = ("_bodies", "_buried_at", "_door", "_listed", "_turned_at", "_turning", "names", "remembered",
                 "waiting")  # fmt: skip

    def __init__(self, door: Door) -> None:
        super().__init__(UNKNOWN, door)
        self.waiting: dict[int, _Stranger] = {}
        self.names: Counter[str] = Counter()
        self.remembered: set[str] = set()
        self._door = door
        self._listed = False
        self._turning = False
        self._turned_at = float("-inf")
        self._buried_at = door.clock.now()
        self._bodies = 0

    @property
    def refused_to(self) -> int:
        """The highest position that was turned away. Nothing up to there is held for anybody."""
        return self.state.frontier.position

    # ---- what an actor would do

    def begin(self, state: State, policy: Policy | None) -> None:
        """The record is known."""
        self.state = self.confirmed = state
        self.loaded = True
        if not self.ready.done():
            self.ready.set_result(None)
        self.poke()

    def configure(self, policy: Policy | None) -> None:
        """Nobody can be called that."""

    def park(self) -> None:
        """They lie in the stream already, and are released when they are turned away."""

    def give_up_to(self, position: int, reason: str) -> None:
        """Nothing here waits for anything but its burial."""

    def confirm(self, fact: Fact, state: State) -> None:
        """The journal holds `fact`: what it turned away may be buried."""
        super().confirm(fact, state)
        self._bury_next()

    @property
    def resting(self) -> bool:
        """Nothing in memory would be lost, and a receiver that is put needs nothing of it."""
        done = (
            self.loaded and self.state is self.confirmed and self.refused_to <= self.host.released_by_journal
        )
        return done and not (self.waiting or self.state.burials or self.burying or self._turning)

    def poke(self) -> None:
        """Something happened: do what is owed."""
        if self.loaded and not self.host.stopped:
            self._bury_next()
            if self.waiting and not self._turning:
                self._turning = True
                self.host.spawn(self._turns())

    # ---- messages

    def take(self, receiver: str, event: Event, reply: str) -> None:
        """A message came for a name that nobody knows by now, or that had one before it here."""
        host, position = self.host, event.position
        now = self.touched_at = host.clock.now()
        if (before := self.waiting.get(position)) is not None:
            before.binding.reply = reply
            return
        binding = host.bindings.bind(position, UNKNOWN, reply, now)
        if self.loaded and position <= self.refused_to:
            host.bindings.release(binding, host.recorder.index)
            return
        fits = self._bodies + event.size <= BODIES_MAX
        self._bodies += event.size if fits else 0
        stranger = _Stranger(receiver, binding, event if fits else None, bool(event.malformed))
        self.waiting[position] = stranger
        self.names[receiver] += 1
        self.poke()

    def _drop(self, position: int) -> _Stranger:
        stranger = self.waiting.pop(position)
        self._bodies -= stranger.event.size if stranger.event else 0
        self.names[stranger.receiver] -= 1
        if not self.names[stranger.receiver]:
            del self.names[stranger.receiver]
        return stranger

    def _is_known(self, stranger: _Stranger) -> bool:
        if stranger.gone:
            return False
        return self._door.knows(stranger.receiver) or stranger.receiver in self.remembered

    # ---- turns

    async def _turns(self) -> None:
        """Turn after turn, as long as somebody waits."""
        while self.waiting:
            pause_s = HURRY_S if len(self.waiting) > PAGE else PAUSE_S
            await asyncio.sleep(max(0.0, self._turned_at + pause_s - self.host.clock.now()))
            try:
                await self._turn()
            except Unavailable:
                await asyncio.sleep(ASK_AGAIN_S)
        self._turning = False

    async def _turn(self) -> None:
        """Turns away what has come until now, or gives it to those that are known after all."""
        door, covered = self._door, sorted(self.waiting)[:LOOKED_AT_MAX]
        self._turned_at = door.clock.now()
        await door.policies.catch_up()
        if not self._listed:
            self.remembered.update(await door.snapshots.receivers())
            self._listed = True
        read_again = await self._read_again(covered)
        if door.stopped:
            return
        self._give_to_known()
        self._turn_away(covered)
        if read_again:
            self._turned_at = float("-inf")

    async def _read_again(self, covered: list[int]) -> bool:
        """Read the bodies of some that are for known receivers and were not kept; whether there were any."""
        some = [
            (position, stranger)
            for position in covered
            if (stranger := self.waiting[position]).event is None and self._is_known(stranger)
        ][:READS_AT_ONCE]
        backlog = self.host.backlog
        found = await asyncio.gather(*(backlog.event(each.receiver, position) for position, each in some))
        for (_, stranger), event in zip(some, found, strict=True):
            stranger.event, stranger.gone = event, event is None
            self._bodies += event.size if event else 0
        return bool(some)

    def _give_to_known(self) -> None:
        """In order, and so that nothing of a receiver waits here any more when its next event comes."""
        unread: set[str] = set()
        for position in sorted(self.waiting):
            stranger = self.waiting[position]
            if stranger.receiver in unread or not self._is_known(stranger):
                continue
            if stranger.event is None:
                unread.add(stranger.receiver)
                continue
            self._drop(position)
            self.host.bindings.drop(stranger.binding)
            self._door.activate(stranger.receiver).arrive(stranger.event, stranger.binding.reply)

    def _turn_away(self, covered: list[int]) -> None:
        """The lowest of them, as far as nothing below is held and there is room for their burials."""
        now = self.host.clock.now()
        stuck_s = now - self._buried_at if self.state.burials else 0.0
        many = self._door.unacked_max // 2
        stuck = len(self.waiting) > many and stuck_s > STUCK_S
        left_behind = [each for each in covered if each < self.host.bindings.received - many]
        if not stuck and left_behind and stuck_s > LEFT_BEHIND_S:
            covered, stuck = left_behind, True
        old, new = list[int](), list[Burial]()
        for position, stranger in self._next(covered, discard=stuck):
            if position <= self.refused_to:  # It came before the record was read.
                old.append(position)
            else:
                reason = "malformed" if stranger.malformed else "unknown_receiver"
                new.append(Burial(position=position, reason=reason, receiver=stranger.receiver))
        if new:
            self.record(c.TurnAway(tuple(new), discarded=stuck), now)
            if stuck:
                log.warning("strangers.discarded", extra={"count": len(new), "why": "nothing can be buried"})
        for position in (*old, *(each.position for each in new)):
            self.host.bindings.release(self._drop(position).binding, self.host.recorder.index)

    def _next(self, covered: list[int], *, discard: bool) -> Iterator[tuple[int, _Stranger]]:
        """Those that may be turned away now."""
        held = self.host.bindings.lowest_but(UNKNOWN)
        room = PAGE if discard else min(PAGE, BURIALS_MAX - len(self.state.burials))
        length = 0 if discard else sum(len(each.receiver) for each in self.state.burials)
        for position in covered:
            stranger = self.waiting.get(position)
            if stranger is None:
                continue
            length += len(stranger.receiver)
            if room <= 0 or length > NAMES_LENGTH_MAX or position > held or self._is_known(stranger):
                return
            room -= 1
            yield position, stranger

    # ---- burials

    def _bury_next(self) -> None:
        """Bury the next of what the confirmed journal says was turned away."""
        if self.burying or self.host.stopped or not self.state.burials:
            return
        confirmed = {each.position for each in self.confirmed.burials}
        due = tuple(each for each in self.state.burials if each.position in confirmed)[:PAGE]
        if due:
            self.burying = True
            self.host.spawn(self._bury(due))

    async def _bury(self, burials: tuple[Burial, ...]) -> None:
        self._buried_at = max(self._buried_at, self.host.clock.now())
        await super()._bury(burials)
        self._buried_at = self.host.clock.now()
