"""The cursor compared with a plain list of all events that a receiver ever had, and where each is.

Nothing that arrived may be lost: it is settled, in memory, or where the cursor will read it. Nothing may
overtake: what goes to memory lies behind all that is there. And no more may be thought to be left than is.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors.machine.event import Event
from actors.memory.cursor import Cursor, FoundEvents
from tests.unit.worlds.values import event

STREAM, MEMORY, OVER, GONE = "in the stream", "in memory", "settled", "gone from the stream"


class Receiver(RuleBasedStateMachine):
    """Events are stored and handed out; memory takes them, parks, reads, and settles or discards them.

    `place` tells where each event is, by position. `losses` counts those that vanished since all was read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cursor = Cursor()
        self.place: dict[int, str] = {}
        self.arrived_to = self.end = self.losses = 0
        self.parked = False
        self.asked: tuple[int, int] | None = None
        self.count: tuple[int, int, int, int] | None = None
        self.came_during_a_count: set[int] = set()

    def of(self, place: str) -> list[int]:
        return [position for position, each in self.place.items() if each == place]

    # ---- an owner begins

    @initialize(settled=st.integers(0, 3), left=st.integers(0, 3))
    def begin(self, settled: int, left: int) -> None:
        for position in range(1, settled + left + 1):
            self.place[position] = OVER if position <= settled else STREAM
        self.arrived_to = self.end = settled + left
        self.parked = left > 0
        self.cursor.restore(settled, self.end if self.parked else 0, is_counted=not self.parked)

    # ---- what comes

    @rule(gap=st.integers(1, 3))
    def stored(self, gap: int) -> None:
        """Others' events lie in between."""
        self.end += gap
        self.place[self.end] = STREAM

    @rule(full=st.booleans())
    def handed_out(self, full: bool) -> None:
        """The next that was not; one that was read already is known."""
        fresh = [position for position in self.place if position > self.arrived_to]
        if not fresh:
            return
        position = self.arrived_to = min(fresh)
        if self.place[position] == GONE or position <= self.cursor.read_to:
            return
        if not full and (not self.parked or self.cursor.is_read_up):
            self.cursor.note_read(position)
            self.place[position] = MEMORY
        else:
            self.cursor.leave(position, 0)
            if self.count is not None:
                self.came_during_a_count.add(position)
            if not self.parked:
                self.park()

    # ---- what goes to the stream

    @rule()
    def park(self) -> None:
        waiting = self.of(MEMORY)
        for position in waiting:
            self.cursor.note_stored(position, 0)
            self.place[position] = STREAM
        kept_to = min(waiting) - 1 if waiting else self.cursor.read_to
        self.cursor.park(kept_to, len(waiting))
        self.parked = True

    @precondition(lambda self: not self.parked and not self.of(MEMORY))
    @rule()
    def park_undecided(self) -> None:
        """Parks a receiver of which some undecided events are known to lie there, but not which."""
        position = self.cursor.read_to
        self.cursor.park_undecided(position, max(position, self.end), 0)
        self.arrived_to, self.parked = self.end, True

    # ---- what comes from there

    @precondition(lambda self: self.parked and self.asked is None and self.cursor.has_unread)
    @rule()
    def read_begins(self) -> None:
        self.cursor.reading = True
        self.asked = (self.cursor.seen_to, self.cursor.last_stored.position)

    @precondition(lambda self: self.asked is not None)
    @rule(size=st.integers(1, 3), lagging=st.booleans(), beyond=st.booleans())
    def read_ends(self, size: int, lagging: bool, beyond: bool) -> None:
        assert self.asked is not None
        (up_to, known), self.asked, self.cursor.reading = self.asked, None, False
        there = [each for each in self.of(STREAM) if each > self.cursor.read_to and (beyond or each <= up_to)]
        page = there[: 0 if lagging else size]
        complete = not lagging and (len(page) == len(there) or page[-1] >= up_to)
        before = self.cursor.read_to
        found = self.cursor.take_read(
            [event(each) for each in page], complete=complete, up_to=up_to, known=known
        )
        for each in found.events:
            assert each.position > max([before, *self.of(MEMORY)]), "it overtakes"
            self.place[each.position] = MEMORY
        if found.gone is not None and not self.of(MEMORY):
            first, last = found.gone
            assert all(self.place.get(each, GONE) == GONE for each in range(first, last + 1))
            self.cursor.pass_missing(last)

    @rule(data=st.data())
    def vanishes(self, data: st.DataObject) -> None:
        """An operator deletes it, or it is too old."""
        if there := self.of(STREAM):
            self.place[data.draw(st.sampled_from(there))] = GONE
            self.losses += 1

    @precondition(lambda self: self.parked and self.cursor.is_read_up and not self.of(MEMORY))
    @rule()
    def unpark(self) -> None:
        self.cursor.forget_left()
        self.parked, self.losses = False, 0

    # ---- what is over

    @precondition(lambda self: self.of(MEMORY))
    @rule()
    def settled(self) -> None:
        self.place[min(self.of(MEMORY))] = OVER

    @precondition(lambda self: self.asked is None)
    @rule(data=st.data())
    def discarded(self, data: st.DataObject) -> None:
        """All that can have been posted, or what came before the receiver was put again."""
        position = data.draw(st.integers(0, max(self.cursor.read_to, self.cursor.seen_to)))
        self.cursor.discard(position)
        more = self.cursor.has_seen_beyond(position)
        for each in [each for each in self.place if each <= position]:
            self.place[each] = OVER
        self.parked = self.parked or more

    # ---- how many are left

    @precondition(lambda self: self.parked and self.count is None and self.cursor.has_unread)
    @rule()
    def count_begins(self) -> None:
        """A backlog is counted only if something is known to be left (`next_step`)."""
        left = [each for each in self.of(STREAM) if each > self.cursor.read_to]
        self.count = (len(left), self.end, self.cursor.count_generation, self.cursor.read_count)

    @precondition(lambda self: self.count is not None)
    @rule()
    def count_ends(self) -> None:
        assert self.count is not None
        (counted, end, generation, read_count), self.count = self.count, None
        self.cursor.take_count(counted, end, generation=generation, read_count=read_count)

    # ---- what must hold

    @invariant()
    def nothing_is_lost(self) -> None:
        cursor = self.cursor
        for position, place in self.place.items():
            if position <= self.arrived_to and place == STREAM:
                assert cursor.read_to < position <= cursor.seen_to, f"{position} is read by nobody"
            if place == MEMORY:
                assert position <= cursor.read_to, f"{position} would be read again"

    @invariant()
    def nothing_overtakes(self) -> None:
        if self.cursor.is_read_up:
            assert not [each for each in self.of(STREAM) if each <= self.arrived_to]

    @invariant()
    def no_more_is_left_than_lies_there(self) -> None:
        there = [each for each in self.of(STREAM) if each > self.cursor.read_to]
        assert self.cursor.left_min <= len(there) + self.losses

    @invariant()
    def what_is_counted_is_all_there_is(self) -> None:
        """Events that came during the count may be in it or not."""
        if self.cursor.is_counted and not self.losses and self.count is None:
            known = [each for each in self.of(STREAM) if self.cursor.read_to < each <= self.arrived_to]
            assert self.cursor.left_min >= len(set(known) - self.came_during_a_count)


Receiver.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestReceiver = Receiver.TestCase


def found(positions: list[int], gone: tuple[int, int] | None = None) -> FoundEvents:
    return FoundEvents([event(position) for position in positions], gone)


@pytest.mark.parametrize(
    ("positions", "complete", "known", "expected", "read_to"),
    [
        # Nothing is missing: a part, all, all and more than was to be reached, nothing at all.
        ([5, 7], False, 3, found([5, 7]), 7),
        ([5, 7], True, 7, found([5, 7]), 9),
        ([5, 12], True, 5, found([5, 12]), 12),
        ([], True, 0, found([]), 9),
        ([], False, 0, found([]), 3),
        # What was read before is not new.
        ([2, 3, 5], True, 5, found([5]), 9),
        # Not there yet: a replica that lags, or a page that ends before it.
        ([5], False, 7, found([5]), 5),
        ([], False, 7, found([]), 3),
        # Gone: the leader has no more, or one behind it came.
        ([], True, 7, found([], (4, 7)), 3),
        ([5], True, 7, found([5], (6, 7)), 5),
        ([5, 8], False, 7, found([5], (6, 7)), 5),
        ([8], True, 7, found([], (4, 7)), 3),
    ],
)
def test_a_read_finds_new_events_and_missing_ones(
    positions: list[int], complete: bool, known: int, expected: FoundEvents, read_to: int
) -> None:
    cursor = Cursor()
    cursor.restore(3, 20)
    events: list[Event] = [event(position) for position in positions]
    assert cursor.take_read(events, complete=complete, up_to=9, known=known) == expected
    assert cursor.read_to == read_to


# ---- how many are left


def counting(left: int) -> Cursor:
    """A cursor after a takeover, with uncounted events to be read."""
    cursor = Cursor()
    cursor.restore(0, left, is_counted=False)
    return cursor


def test_events_read_during_a_count_are_no_longer_left() -> None:
    cursor = counting(5)
    cursor.take_read([event(1), event(2)], complete=False, up_to=5, known=0)
    cursor.take_count(5, 5, generation=0, read_count=0)
    assert (cursor.left_min, cursor.is_counted) == (3, True)


def test_a_count_that_was_overtaken_by_a_whole_read_says_nothing() -> None:
    cursor = counting(2)
    generation, read_count = cursor.count_generation, cursor.read_count
    cursor.take_read([event(1), event(2)], complete=True, up_to=2, known=0)
    cursor.take_count(2, 2, generation=generation, read_count=read_count)
    assert cursor.left_min == 0


def test_events_up_to_the_end_of_a_count_may_be_in_it() -> None:
    cursor = counting(5)
    cursor.take_count(7, 9, generation=0, read_count=0)
    cursor.leave(8, 0)
    assert cursor.left_min == 7
    cursor.leave(10, 0)
    assert cursor.left_min == 8


def test_while_a_read_is_under_way_nothing_overtakes_what_it_may_find() -> None:
    cursor = Cursor()
    assert cursor.is_read_up
    cursor.reading = True
    assert not cursor.is_read_up


def test_events_beyond_the_discarded_ones_are_uncounted_and_reported() -> None:
    cursor = counting(9)
    cursor.take_count(4, 9, generation=0, read_count=0)
    cursor.discard(5)
    assert cursor.has_seen_beyond(5)
    assert (cursor.read_to, cursor.seen_to, cursor.left_min, cursor.is_counted) == (5, 9, 0, False)
    cursor.discard(9)
    assert not cursor.has_seen_beyond(9)
    assert (cursor.read_to, cursor.seen_to) == (9, 9)
