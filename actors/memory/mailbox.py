"""The events of one receiver that are in memory: in stream order, bounded in number and bytes."""

from actors.machine.event import EVENT_BYTES, Event

MAILBOX_MAX = 128
MAILBOX_BYTES_MAX = 1 << 20


class Mailbox:
    """The events that wait for their turn, the oldest first; `events` is read-only for callers.

    A caller that appends without asking `fits` keeps within the bounds by itself.
    """

    __slots__ = ("_bytes", "events")

    def __init__(self) -> None:
        # Shifting so few takes 30 ns, and an empty deque would take 700 bytes in every idle actor.
        self.events: list[Event] = []
        self._bytes = 0  # Of the bodies.

    def __len__(self) -> int:
        return len(self.events)

    @property
    def head(self) -> Event | None:
        """The oldest event, whose turn it is."""
        return self.events[0] if self.events else None

    def fits(self, event: Event) -> bool:
        """True if there is room for it. One event always fits, of any size."""
        if not self.events:
            return True
        count = len(self.events)
        size = self._bytes + len(event.body) + (count + 1) * EVENT_BYTES
        return count < MAILBOX_MAX and size <= MAILBOX_BYTES_MAX

    def holds(self, position: int) -> bool:
        """True if the event at that position waits here."""
        return any(each.position == position for each in self.events)

    def append(self, event: Event) -> None:
        """Hold an event that is newer than all others."""
        self.events.append(event)
        self._bytes += len(event.body)

    def put_back(self, event: Event) -> None:
        """Hold an event that is older than all others, since its turn is not over."""
        self.events.insert(0, event)
        self._bytes += len(event.body)

    def pop(self) -> Event:
        """Take the head out."""
        event = self.events.pop(0)
        self._bytes -= len(event.body)
        return event

    def drop_to(self, position: int) -> None:
        """Drop all events up to that position."""
        while self.events and self.events[0].position <= position:
            self.pop()

    def clear(self) -> list[Event]:
        """Drop all events, and return them."""
        events, self.events, self._bytes = self.events, [], 0
        return events
