"""The events of one receiver that are in memory: in stream order, bounded in number and bytes."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from msgspec.structs import replace

from actors.configuration.policy import BatchLimits
from actors.machine.event import EVENT_BYTES, Event

MAILBOX_MAX = 128
MAILBOX_BYTES_MAX = 1 << 20


class Mailbox:
    """The events that wait for their turn, the oldest first; `events` is read-only for callers.

    A caller that appends without asking `fits` keeps within the bounds by itself.
    """

    __slots__ = ("_bytes", "_bytes_max", "_events_max", "events")

    def __init__(self) -> None:
        self._events_max, self._bytes_max = MAILBOX_MAX, MAILBOX_BYTES_MAX
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
        return count < self._events_max and size <= self._bytes_max

    def hold_batches(self, limits: BatchLimits | None) -> None:
        """Have room for two such batches in addition to what a receiver without batches may have.

        As many messages come before flow control pauses the requests, and those that were requested then.
        """
        self._events_max, self._bytes_max = MAILBOX_MAX, MAILBOX_BYTES_MAX
        if limits is not None:
            self._events_max += 2 * limits.max_events
            self._bytes_max += 2 * (limits.max_bytes + limits.max_events * EVENT_BYTES)

    def holds(self, position: int) -> bool:
        """True if the event at that position waits here."""
        return any(each.position == position for each in self.events)

    def append(self, event: Event) -> None:
        """Hold an event that is newer than all others."""
        self.events.append(event)
        self._bytes += len(event.body)

    def put_back(self, events: Iterable[Event]) -> None:
        """Hold events whose turn is not over, in order with the others: these are newer, or duplicates."""
        self.events[:0] = events
        self.events.sort(key=attrgetter("position"))
        self._bytes = sum(len(each.body) for each in self.events)

    def shape_again(self) -> None:
        """Forget which events could not be shaped: there is another transform now."""
        self.events = [replace(each, unshapeable=False) if each.unshapeable else each for each in self.events]

    def take(self, events: Sequence[Event]) -> None:
        """Take these events out, which are the oldest except for duplicates among them."""
        last = events[-1].position
        taken = {each.position for each in events}
        end = next((i for i, each in enumerate(self.events) if each.position > last), len(self.events))
        self.events[:end] = [each for each in self.events[:end] if each.position not in taken]
        self._bytes -= sum(len(each.body) for each in events)

    def pop(self) -> Event:
        """Take the head out."""
        event = self.events.pop(0)
        self._bytes -= len(event.body)
        return event

    def drop_to(self, position: int) -> None:
        """Drop all events up to that position."""
        while self.events and self.events[0].position <= position:
            self.pop()

    def clear(self, after: int = 0) -> list[Event]:
        """Drop all events beyond position `after`, and return them."""
        kept = [each for each in self.events if each.position <= after] if after else []
        events = [each for each in self.events if each.position > after] if kept else self.events
        self.events, self._bytes = kept, sum(len(each.body) for each in kept)
        return events
