"""The cursor of one receiver: how far its events are read from the stream, and what is left there.

Pure: positions come in, and nothing is awaited, decided or recorded. The rules that it keeps:

1. Whatever arrived and is not settled is in memory, or lies beyond `read_to` and up to `seen`: then it is
   read from the stream when its turn comes, in order. So an event may go to memory only if nothing before it
   is left in the stream (`is_read_up`), and one that may not raises `seen`.
2. What is dropped from memory lies beyond `read_to` again, and rests on the fact `Parked` with the index
   `parked_mark`.
3. A read is complete when it reached where it was to reach, or by the leader's word. An event that was there
   for certain (`known`) and is gone is told, since it may have been posted; until that is on record the read
   ends in front of it.
4. `left` is never more than lies in the stream: what is given up for being too much is given up for good.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from actors.machine.event import Event


class LastLeft(Struct, frozen=True, gc=False):
    """The last event that was left in the stream: it was certainly there. `source`: the highest so far."""

    position: int
    source: int


class Found(Struct, frozen=True):
    """New events of a read in stream order, and the positions of missing ones.

    What is gone is recorded only when all before it is settled; until then, the read ends in front of it.
    """

    events: list[Event]
    gone: tuple[int, int] | None = None


class Cursor:
    """The place up to which the stream is read for one receiver, and what is left behind it.

    All its events up to `read_to` are in memory or settled; the last that is known to have been there is at
    `seen`. `left` of them at least lie in the stream alone, just so many if they are `counted`, but for what
    came while they were; those up to `counted_to` were counted before they arrived. `sweeps` tells how often
    all that was known of them was dropped, `taken` how many were read and not dropped again. A count or a
    read is under way while it is `counting` or `reading`.
    """

    __slots__ = ("counted", "counted_to", "counting", "known", "left", "parked_mark", "read_to", "reading",
                 "seen", "sweeps", "taken")  # fmt: skip

    def __init__(self) -> None:
        self.read_to = self.seen = 0
        self.known = LastLeft(0, 0)
        self.left = 0
        self.counted = True
        self.counting = self.reading = False
        self.counted_to = self.sweeps = self.taken = 0
        self.parked_mark = 0

    def begin(self, position: int, seen: int, *, counted: bool = True) -> None:
        """Begin behind `position`: all up to there is settled, and nothing is in memory."""
        self.read_to, self.seen, self.counted = position, max(position, seen), counted

    @property
    def is_read_up(self) -> bool:
        """True if an arriving event is the next one, with no earlier one left in the stream."""
        return self.read_to >= self.seen and not self.reading

    # ---- what comes

    def arrived(self, position: int) -> None:
        """Count the event as read: it and all earlier ones are in memory or settled."""
        self.read_to = position

    def left_behind(self, position: int, source: int) -> None:
        """Count the event as left only in the stream, unless it was counted before."""
        self.left += position > max(self.read_to, self.seen, self.counted_to)
        self.saw(position, source)

    def saw(self, position: int, source: int) -> None:
        """Note that the event was certainly in the stream."""
        known = self.known
        self.seen = max(self.seen, position)
        self.known = LastLeft(max(known.position, position), max(known.source, source))

    # ---- what goes from memory to the stream

    def parked(self, position: int, dropped: int) -> None:
        """Go back to `position`: `dropped` events beyond it were dropped from memory, all of them seen."""
        self.read_to = position
        self.left += dropped
        self.taken -= dropped

    def parked_unjudged(self, position: int, seen: int, dropped: int) -> None:
        """Go back as `parked` does, where up to `seen` any number more may be this receiver's."""
        self.parked(position, dropped)
        self.seen, self.counted = max(self.seen, seen), False

    # ---- what comes from the stream to memory

    def read(self, events: Sequence[Event], *, complete: bool, reach: int, known: int) -> Found:
        """Take what a read from `read_to` to `reach` found; an event was at `known` for certain.

        Of what was seen after the read began, the answer need not tell.
        """
        found, end = _sift(events, complete=complete, reach=reach, read_to=self.read_to, known=known)
        self.left = max(0, self.left - len(found.events))
        self.taken += len(found.events)
        self._go_to(end)
        return found

    def missed(self, position: int) -> None:
        """Pass over the events up to `position`, which are on record as missing."""
        self._go_to(position)

    def _go_to(self, position: int) -> None:
        self.read_to = position
        if position >= self.seen:
            self.unparked()

    def unparked(self) -> None:
        """Forget what was left: no event is only in the stream any more."""
        self._sweep()
        self.counted = True

    def discarded(self, position: int) -> bool:
        """Pass over all up to `position`, which is discarded; returns whether more was seen beyond it."""
        self.read_to = max(self.read_to, position)
        self._sweep()
        if self.seen > position:
            self.counted = False
            return True
        self.seen = position
        return False

    def _sweep(self) -> None:
        self.left = self.counted_to = 0
        self.sweeps += 1

    # ---- how many are left

    def count(self, counted: int, end: int, *, sweeps: int, taken: int) -> None:
        """Learn that so many lay in the stream, up to its `end`; `sweeps` and `taken` are as they were then.

        Rather too little is given up than too much: what was read meanwhile is no more there, and what
        arrives up to the end may have been counted.
        """
        if self.sweeps == sweeps:
            self.left = max(self.left, counted - (self.taken - taken))
            self.counted, self.counted_to = True, end


def _sift(
    events: Iterable[Event], *, complete: bool, reach: int, read_to: int, known: int
) -> tuple[Found, int]:
    """Finds what is new in a read that was to reach `reach` from `read_to`, and how far it came.

    `known` is the highest position, at most `reach`, where an event of this receiver was seen for certain.
    """
    fresh = [each for each in events if each.position > read_to]
    end = fresh[-1].position if fresh else read_to
    if known <= read_to or any(each.position == known for each in fresh):
        return Found(fresh), max(end, reach) if complete else end
    before = [each for each in fresh if each.position < known]
    end = before[-1].position if before else read_to
    certain = complete or len(before) < len(fresh)
    return Found(before, (end + 1, known) if certain else None), end
