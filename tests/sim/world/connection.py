"""TCP between a simulated process and the server: in order, each direction independent, until it breaks.

A connection that breaks takes along what is under way, except a part of it that had got far enough. Both
ends find out by themselves and later; until then what they send goes nowhere.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from streams.nats.wire import Message
from tests.sim.server import FakeServer
from tests.sim.server.sessions import Frame
from tests.sim.world.faults import Faults
from tests.sim.world.world import World


class ConnectionWorld(Protocol):
    """The world of a connection: a `tests.sim.world.network.Network`."""

    world: World
    server: FakeServer
    faults: Faults
    chance: Random

    def happens(self, chance: float) -> bool: ...
    def delay_s(self) -> float: ...


class Pipe:
    """One direction."""

    def __init__(self, around: ConnectionWorld, arrives: Callable[[Any], None]) -> None:
        self._around = around
        self._arrives = arrives
        self._under_way: deque[tuple[float, Any]] = deque()
        self._scheduled = False
        self.last_at = 0.0
        """When the last thing that was sent arrives, or has arrived."""

    def send(self, what: object) -> None:
        self.last_at = max(self.last_at, self._around.world.now + self._around.delay_s())
        self._under_way.append((self.last_at, what))
        self._schedule()

    def _schedule(self) -> None:
        if self._under_way and not self._scheduled:
            self._scheduled = True
            self._around.world.at(self._under_way[0][0], self._arrive)

    def _arrive(self) -> None:
        now = self._around.world.now
        while self._under_way and self._under_way[0][0] <= now:
            self._arrives(self._under_way.popleft()[1])
        self._scheduled = False
        self._schedule()

    def lose(self) -> None:
        """Loses everything that is under way."""
        self._under_way.clear()

    def break_off(self) -> None:
        """Lose what is under way, from somewhere on."""
        kept = self._around.chance.randint(0, len(self._under_way))
        while len(self._under_way) > kept:
            self._under_way.pop()


class Connection:
    """`receives` gets what arrives at the client, `ends` is called when the client finds it broken."""

    def __init__(
        self,
        around: ConnectionWorld,
        name: str,
        receives: Callable[[int, Message], None],
        ends: Callable[["Connection"], None],
    ) -> None:
        self._around = around
        self._receives = receives
        self._ends = ends
        self._up = Pipe(around, self._reaches_server)
        self._down = Pipe(around, self._reaches_client)
        self._session = around.server.open(self._from_server, self._closed_by_server, name)
        self.broken = False
        self.ended = False
        """True once the client's end has noticed."""

    def send(self, frame: Frame) -> None:
        """From the client; into the void when it is broken."""
        if not self.broken:
            self._up.send(frame)

    def cut(self) -> None:
        """Breaks the connection somewhere between the two ends."""
        if self._break():
            notice_s = self._around.faults.notice_s
            self._later(self._up, self._around.chance.random() * notice_s, self._session.close)
            self._later(self._down, self._around.chance.random() * notice_s, self._end)

    def abandon(self) -> None:
        """The client's process is gone; its kernel closes the connection."""
        if self._break():
            self._later(self._up, self._around.delay_s(), self._session.close)

    def close(self) -> None:
        """The client closes it in order: the server gets all that was sent."""
        if not self.broken:
            self.broken = True
            self._later(self._up, 0.0, self._session.close)

    def _break(self) -> bool:
        """Breaks the connection; true if it was whole before."""
        if self.broken:
            return False
        self.broken = True
        self._up.break_off()
        self._down.break_off()
        return True

    def _closed_by_server(self) -> None:
        if self._break():
            self._later(self._down, self._around.delay_s(), self._end)

    def _end(self) -> None:
        self.ended = True
        self._ends(self)

    def _later(self, behind: Pipe, delay_s: float, callback: Callable[..., None], *args: object) -> None:
        """Not before what still arrives through the pipe."""
        world = self._around.world
        world.at(max(world.now + delay_s, behind.last_at), callback, *args)

    def _reaches_server(self, frame: Frame) -> None:
        around = self._around
        if self.broken or not around.happens(around.faults.cut_request):
            around.server.receive(self._session, frame)
            if around.happens(around.faults.cut_answer):
                self._cut_at(frame, "answer to")
        else:
            self._up.lose()  # What was sent behind a frame that is lost is lost, too.
            self._cut_at(frame, "request")

    def _cut_at(self, frame: Frame, what: str) -> None:
        subject = frame.subject if isinstance(frame, Message) else type(frame).__name__
        self._around.world.say("cut at the %s %s", what, subject)
        self.cut()

    def _from_server(self, number: int, message: Message) -> None:
        if self.broken:
            return
        # These are not awaited: they may be dropped on the way, and the server would not know.
        unasked = not message.subject.startswith("_INBOX.")
        if unasked and self._around.happens(self._around.faults.lost):
            self._around.world.say("lost %s %s", message.subject, message.reply)
        else:
            self._down.send((number, message))

    def _reaches_client(self, item: tuple[int, Message]) -> None:
        self._receives(*item)
