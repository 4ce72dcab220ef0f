"""Which event gets the next number, checked against a plain list of ids and a set."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from actors.ids import KEY_BYTES, dedup_key
from actors.machine.event import Event
from actors.machine.numbering import (
    Frontier,
    Numbered,
    advance,
    advance_all,
    is_duplicate,
    move_frontier,
    next_in_order,
    resize,
)


def event(position: int, name: str, *, again: str = "", source: int = 0) -> Event:
    return Event(position=position, id=name, stored_at=0.0, body=b"", again=again, source=source)


def numbered(frontier: Frontier, given_event: Event) -> Numbered:
    return Numbered(
        sequence=frontier.sequence + 1, position=given_event.position, id=given_event.id, stored_at=0.0,
        again=given_event.again, source=given_event.source,
    )  # fmt: skip


class Resize(Struct, frozen=True):
    """The window gets another size, `ahead` events after now."""

    size: int
    ahead: int


class Naive:
    """Numbering in the plainest words: every key ever numbered, and how many of the last are remembered."""

    def __init__(self, size: int) -> None:
        self.keys: list[tuple[str, str]] = []
        self.kept, self.size = 0, size
        self.change: tuple[int, int] | None = None
        self.source = 0

    def is_duplicate(self, given_event: Event) -> bool:
        if 0 < given_event.source <= self.source:
            return True
        size = self.change[1] if self.change and given_event.position > self.change[0] else self.size
        window = self.keys[max(0, len(self.keys) - min(size, self.kept)) :]
        return (given_event.id, given_event.again) in set(window)

    def give(self, given_event: Event) -> None:
        if self.change and given_event.position > self.change[0]:
            self.size, self.change = self.change[1], None
        self.keys.append((given_event.id, given_event.again))
        self.kept = min(self.kept + 1, self.size)
        self.source = max(self.source, given_event.source)

    def resize(self, size: int, above: int, position: int) -> None:
        if above <= position:
            self.size, self.change, self.kept = size, None, min(size, self.kept)
        else:
            self.change = (above, size)


NAMES = st.sampled_from("abcdefgh")
EVENTS = st.tuples(NAMES, st.sampled_from(["", "", "", "r1"]), st.sampled_from([0, 0, 1, 2, 3, 5, 8]))
RESIZES = st.builds(Resize, st.integers(1, 6), st.integers(0, 4))


@given(st.lists(EVENTS | RESIZES, max_size=60), st.integers(1, 6))
def test_the_packed_window_is_a_set_of_the_last_ids(
    happenings: list[tuple[str, str, int] | Resize], size: int
) -> None:
    frontier, naive = Frontier(size=size), Naive(size)
    for position, happening in enumerate(happenings, 1):
        if isinstance(happening, Resize):
            above = position - 1 + happening.ahead
            naive.resize(happening.size, above, frontier.position)
            frontier = resize(frontier, happening.size, above)
            continue
        name, again, source = happening
        given_event = event(position, name, again=again, source=0 if again else source)
        assert is_duplicate(frontier, given_event) == naive.is_duplicate(given_event)
        if not is_duplicate(frontier, given_event):
            frontier = advance(frontier, numbered(frontier, given_event))
            naive.give(given_event)
        assert frontier.sequence == len(naive.keys)
        assert len(frontier.window) == KEY_BYTES * naive.kept


@given(st.lists(NAMES, max_size=40), st.integers(0, 40))
def test_every_reader_of_a_part_of_the_journal_gives_the_same_numbers(names: list[str], cut: int) -> None:
    """A snapshot in between, by way of JSON, changes nothing."""

    def fold(frontier: Frontier, part: Iterator[tuple[int, str]]) -> Frontier:
        for position, name in part:
            given_event = event(position, name)
            if not is_duplicate(frontier, given_event):
                frontier = advance(frontier, numbered(frontier, given_event))
        return frontier

    stream = list(enumerate(names, 1))
    half = fold(Frontier(size=4), iter(stream[:cut]))
    stored = msgspec.json.decode(msgspec.json.encode(half), type=Frontier)
    assert stored == half
    assert fold(stored, iter(stream[cut:])) == fold(Frontier(size=4), iter(stream))


@given(
    st.lists(st.tuples(NAMES, st.integers(1, 3), st.sampled_from([0, 0, 1, 5, 9])), max_size=30),
    st.integers(0, 30),
    st.integers(1, 6),
    RESIZES | st.none(),
)
def test_events_that_come_together_move_the_frontier_as_one_by_one(
    given_events: list[tuple[str, int, int]], first: int, size: int, resized: Resize | None
) -> None:
    """Some of them may be passed already, or lie beyond a change of the window's size."""
    position, events = first, list[Numbered]()
    for sequence, (name, step, source) in enumerate(given_events, 1):
        position += step
        events.append(Numbered(sequence=sequence, position=position, id=name, stored_at=0.0, source=source))
    frontier = one_by_one = Frontier(position=10, sequence=7, window=dedup_key("a", ""), size=size)
    if resized is not None:
        frontier = one_by_one = resize(frontier, resized.size, 10 + resized.ahead)
    for each in events:
        one_by_one = advance(one_by_one, each)
    assert advance_all(frontier, events) == one_by_one


@given(
    st.lists(st.tuples(EVENTS, st.integers(1, 3), st.sampled_from(["", "", "", "", "bad"])), max_size=30),
    st.lists(NAMES, max_size=6),
    st.integers(1, 6),
    RESIZES | st.none(),
    st.integers(0, 10),
)
def test_the_next_in_order_are_the_events_without_duplicates(
    waiting: list[tuple[tuple[str, str, int], int, str]],
    before: list[str],
    size: int,
    resized: Resize | None,
    count_max: int,
) -> None:
    frontier, position, events = Frontier(size=size), 0, list[Event]()
    for position, name in enumerate(before, 1):
        frontier = advance(frontier, numbered(frontier, event(position, name)))
    if resized is not None:
        frontier = resize(frontier, resized.size, position + resized.ahead)
    for (name, again, source), step, malformed in waiting:
        position += step
        came = event(position, name, again=again, source=0 if again else source)
        events.append(replace(came, malformed=malformed))
    found, at = list[Event](), frontier
    for each in events:
        if len(found) >= count_max or each.malformed:
            break
        if not is_duplicate(at, each):
            found.append(each)
            at = advance(at, numbered(at, each))
    assert next_in_order(frontier, events, count_max) == found


def test_a_key_is_found_only_where_a_key_begins() -> None:
    """The end of one key and the beginning of the next may look like a third."""
    key, two_keys = dedup_key("a", ""), b"\0" * 3 + dedup_key("a", "") + b"\0" * 5
    assert not is_duplicate(Frontier(window=two_keys), event(1, "a"))
    assert is_duplicate(Frontier(window=two_keys + key), event(1, "a"))


def test_a_number_that_is_given_changes_nothing_again() -> None:
    first = Numbered(sequence=1, position=5, id="a", stored_at=0.0)
    frontier = advance(Frontier(), first)
    assert advance(frontier, first) == frontier
    assert advance(frontier, Numbered(sequence=9, position=4, id="b", stored_at=0.0)) == frontier


@pytest.mark.parametrize(("source", "duplicate"), [(0, False), (6, True), (7, True), (8, False)])
def test_a_copy_of_the_router_at_or_below_the_highest_source_is_a_duplicate(
    source: int, duplicate: bool
) -> None:
    frontier = Frontier(position=3, sequence=1, source=7)
    assert is_duplicate(frontier, event(4, "x", source=source)) is duplicate


def test_the_highest_source_never_falls() -> None:
    frontier = Frontier(position=3, sequence=1, source=7)
    frontier = advance(frontier, Numbered(sequence=2, position=4, id="direct", stored_at=0.0))
    assert frontier.source == 7


def test_an_event_that_is_sent_again_counts_as_another_event_once() -> None:
    frontier = advance(Frontier(), Numbered(sequence=1, position=1, id="a", stored_at=0.0))
    assert is_duplicate(frontier, event(2, "a"))
    assert not is_duplicate(frontier, event(2, "a", again="r1"))
    frontier = advance(frontier, Numbered(sequence=2, position=2, id="a", again="r1", stored_at=0.0))
    assert is_duplicate(frontier, event(3, "a", again="r1"))


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_a_frontier_moves_forward_only(position: int, sequence: int, to: int, next_sequence: int) -> None:
    before = Frontier(position=position, sequence=sequence, source=3, window=b"12345678")
    after = move_frontier(before, to, next_sequence)
    assert after.position == max(position, to)
    assert after.sequence == max(sequence, next_sequence - 1)
    assert (after.source, after.window) == (before.source, before.window)


def test_events_up_to_there_keep_the_old_size() -> None:
    """An earlier owner may have posted them under it, unrecorded; numbered again they must come out alike."""
    frontier = Frontier(size=2)
    for position, name in enumerate("abc", 1):
        frontier = advance(frontier, Numbered(sequence=position, position=position, id=name, stored_at=0.0))
    frontier = resize(frontier, 16, above=5)
    assert not is_duplicate(frontier, event(4, "a"))
    assert [frontier.size_at(position) for position in (4, 5, 6)] == [2, 2, 16]
    frontier = advance(frontier, Numbered(sequence=4, position=6, id="d", stored_at=0.0))
    assert (frontier.size, frontier.change) == (16, None)
    assert is_duplicate(frontier, event(7, "b"))
