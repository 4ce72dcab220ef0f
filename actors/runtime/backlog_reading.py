"""Reads the events of one receiver that are only in the stream, and counts them."""

from collections.abc import Callable

from actors.errors import Unavailable
from actors.machine.event import Event
from actors.machine.scheduling import steps as s
from actors.ports import BacklogPage
from actors.runtime.pending import Pending


class BacklogReading:
    """One read and one count at a time; what they find goes to `pending`.

    Then `wake` is called; if NATS did not answer, `try_later` is.
    """

    __slots__ = ("_environment", "_pending", "_receiver", "_try_later", "_wake")

    def __init__(self, pending: Pending, wake: Callable[[], None], try_later: Callable[[], None]) -> None:
        self._receiver = pending.live.receiver
        self._environment = pending.live.environment
        self._pending = pending
        self._wake = wake
        self._try_later = try_later

    def start(self, step: s.ReadBacklog | s.ReadOpenEvents) -> None:
        """Begin to read, unless a read is under way."""
        if not self._pending.cursor.reading:
            self._pending.cursor.reading = True
            self._environment.spawn(self._read(step))

    def start_count(self, after: int) -> None:
        """Begin to count the events after that position."""
        self._pending.cursor.is_counting = True
        self._environment.spawn(self._count(after))

    async def _read(self, step: s.ReadBacklog | s.ReadOpenEvents) -> None:
        """Read the events that have been seen up to now; later ones need not be in the answer."""
        backlog, pending, cursor = self._environment.backlog, self._pending, self._pending.cursor
        up_to, last_stored = cursor.seen_to, cursor.last_stored
        found: dict[int, Event | None] | BacklogPage
        try:
            if isinstance(step, s.ReadOpenEvents):
                found = await self._open_events(step.positions)
            else:
                found = await backlog.read(self._receiver, step.after, up_to, pending.page_events)
        except Unavailable:
            cursor.reading = False
            self._try_later()
            return
        if self._environment.stopped:
            return
        cursor.reading = False
        if isinstance(found, BacklogPage):
            pending.take_read(found, up_to, last_stored)
        else:
            for position, event in found.items():
                pending.hold_read_again(position, event)
        self._wake()

    async def _open_events(self, positions: tuple[int, ...]) -> dict[int, Event | None]:
        """Read these open events; only the leader says that one is gone."""
        backlog, receiver, found = self._environment.backlog, self._receiver, dict[int, Event | None]()
        wanted = positions if len(positions) > 1 else ()
        while wanted:
            # Any number of settled events may lie between them: each read begins at one that is wanted.
            page = await backlog.read(receiver, wanted[0] - 1, wanted[-1], len(wanted))
            found |= {each.position: each for each in page.events if each.position in wanted}
            done = page.complete or not page.events
            wanted = () if done else tuple(each for each in wanted if each > page.events[-1].position)
        for position in positions:
            if position not in found:
                found[position] = await backlog.event(receiver, position)
        return found

    async def _count(self, after: int) -> None:
        """Find out how many events are only in the stream, up to which position; one replica counts them."""
        backlog, cursor = self._environment.backlog, self._pending.cursor
        generation, read_count = cursor.count_generation, cursor.read_count
        try:
            counted = await backlog.count(self._receiver, after)
            end = await backlog.end()
        except Unavailable:
            cursor.is_counting = False
            self._try_later()
            return
        cursor.is_counting = False
        if not self._environment.stopped:
            cursor.take_count(counted, end, generation=generation, read_count=read_count)
            self._wake()
