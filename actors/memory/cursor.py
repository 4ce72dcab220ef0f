"""The cursor of one receiver: how far its events are read from the stream, and what is left there.

It is pure: positions come in, and nothing is awaited, decided or recorded. It keeps these rules:

1. An event that arrived and is not settled is in memory, or is beyond `read_to` and up to `seen_to`: then it
   is read from the stream when its turn comes, in order. So an event may go to memory only if no earlier one
   is left in the stream (`is_read_up`); otherwise it raises `seen_to`.
2. An event that is dropped from memory is beyond `read_to` again, and its release rests on the fact
   `Parked` with the index `parked_index`.
3. A read is complete if it got as far as it should, or if the leader says so. An event that was certainly
   stored (`last_stored`) and is gone is reported, since it may have been posted; until that is recorded, the
   read ends in front of it.
4. `left_min` never exceeds what is in the stream: an event that is given up for `overflow` is given up for
   good.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from actors.machine.event import Event


class LastStored(Struct, frozen=True, gc=False):
    """The last event that certainly was in the stream. `source` is the highest so far."""

    position: int
    source: int


class FoundEvents(Struct, frozen=True):
    """The new events of a read in stream order, and the positions between which events are `gone`.

    A loss is recorded only when all events before it are settled; until then, the read ends in front of it.
    """

    events: list[Event]
    gone: tuple[int, int] | None = None


class Cursor:
    """The position up to which the stream is read for one receiver, and what is left beyond it.

    - `read_to`: all events up to here are in memory or settled.
    - `seen_to`: the last position at which an event was certainly stored.
    - `last_stored`: the last event that came and was not kept in memory.
    - `left_min`: at least this many events are only in the stream.
    - `is_counted`: `left_min` is exact, except for events that came during the count.
    - `counted_to`: events up to here were counted before they arrived.
    - `count_generation`: grows when `left_min` is set back, so that a count under way is too old.
    - `read_count`: how many events were read from the stream and not dropped again.
    - `parked_index`: index of the fact under which the last events were dropped from memory.
    - `is_counting`, `reading`: a count or a read is under way.
    """

    __slots__ = (
        "count_generation",
        "counted_to",
        "is_counted",
        "is_counting",
        "last_stored",
        "left_min",
        "parked_index",
        "read_count",
        "read_to",
        "reading",
        "seen_to",
    )  # fmt: skip

    def __init__(self) -> None:
        self.read_to = self.seen_to = 0
        self.last_stored = LastStored(0, 0)
        self.left_min = 0
        self.is_counted = True
        self.is_counting = self.reading = False
        self.counted_to = self.count_generation = self.read_count = 0
        self.parked_index = 0

    def restore(self, position: int, seen_to: int, *, is_counted: bool = True) -> None:
        """Continue after `position`: all events up to there are settled, and none is in memory."""
        self.read_to, self.seen_to, self.is_counted = position, max(position, seen_to), is_counted

    @property
    def is_read_up(self) -> bool:
        """True if an arriving event is the next one, with no earlier one left in the stream."""
        return self.read_to >= self.seen_to and not self.reading

    @property
    def has_unread(self) -> bool:
        """True if an event was seen that is not read yet."""
        return self.read_to < self.seen_to

    def has_seen_beyond(self, position: int) -> bool:
        """True if an event was seen beyond `position`, whether it is read or not."""
        return self.seen_to > position

    # ---- what comes

    def note_read(self, position: int) -> None:
        """Count the event as read: it and all earlier ones are in memory or settled."""
        self.read_to = position

    def leave(self, position: int, source: int) -> None:
        """Count the event as left only in the stream, unless it was counted before."""
        self.left_min += position > max(self.read_to, self.seen_to, self.counted_to)
        self.note_stored(position, source)

    def note_stored(self, position: int, source: int) -> None:
        """Note that the event was certainly in the stream."""
        last = self.last_stored
        self.seen_to = max(self.seen_to, position)
        self.last_stored = LastStored(max(last.position, position), max(last.source, source))

    # ---- what goes from memory to the stream

    def park(self, position: int, dropped: int) -> None:
        """Go back to `position`: `dropped` events beyond it left memory, and all of them have been seen."""
        self.read_to = position
        self.left_min += dropped
        self.read_count -= dropped

    def park_undecided(self, position: int, seen_to: int, dropped: int) -> None:
        """Go back as `park` does; any number of further events up to `seen_to` may be this receiver's."""
        self.park(position, dropped)
        self.seen_to, self.is_counted = max(self.seen_to, seen_to), False

    # ---- what comes from the stream to memory

    def take_read(self, events: Sequence[Event], *, complete: bool, up_to: int, known: int) -> FoundEvents:
        """Take the result of a read from `read_to` to `up_to`; an event was certainly stored at `known`.

        The result need not contain events that were seen after the read began.
        """
        found, end = _sift(events, complete=complete, up_to=up_to, read_to=self.read_to, known=known)
        self.left_min = max(0, self.left_min - len(found.events))
        self.read_count += len(found.events)
        self._go_to(end)
        return found

    def pass_missing(self, position: int) -> None:
        """Pass over the events up to `position`, which are recorded as missing."""
        self._go_to(position)

    def pass_numbered(self, count: int, position: int) -> None:
        """Pass over `count` events up to `position`, which were only in the stream and now have numbers."""
        self.left_min = max(0, self.left_min - count)
        self.read_count += count
        self._go_to(position)

    def _go_to(self, position: int) -> None:
        self.read_to = position
        if position >= self.seen_to:
            self.forget_left()

    def forget_left(self) -> None:
        """Forget what was left, since no event is only in the stream any more."""
        self._forget_left()
        self.is_counted = True

    def discard(self, position: int) -> None:
        """Pass over all events up to `position`, which are discarded; later ones have to be counted."""
        self.read_to = max(self.read_to, position)
        self._forget_left()
        if self.seen_to > position:
            self.is_counted = False
        else:
            self.seen_to = position

    def _forget_left(self) -> None:
        self.left_min = self.counted_to = 0
        self.count_generation += 1

    # ---- how many are left

    def take_count(self, counted: int, end: int, *, generation: int, read_count: int) -> None:
        """Take the result of a count up to `end`; `generation` and `read_count` are those of its beginning.

        It is better to give up too little than too much: events that were read meanwhile are no longer left,
        and events that arrive up to the end may have been counted.
        """
        if self.count_generation == generation:
            self.left_min = max(self.left_min, counted - (self.read_count - read_count))
            self.is_counted, self.counted_to = True, end


def _sift(
    events: Iterable[Event], *, complete: bool, up_to: int, read_to: int, known: int
) -> tuple[FoundEvents, int]:
    """Find the new events in a read from `read_to` that should reach `up_to`, and how far it got.

    `known` is the highest position, at most `up_to`, where an event of this receiver was certainly stored.
    """
    fresh = [each for each in events if each.position > read_to]
    end = fresh[-1].position if fresh else read_to
    if known <= read_to or any(each.position == known for each in fresh):
        return FoundEvents(fresh), max(end, up_to) if complete else end
    before = [each for each in fresh if each.position < known]
    end = before[-1].position if before else read_to
    certain = complete or len(before) < len(fresh)
    return FoundEvents(before, (end + 1, known) if certain else None), end
