"""The adaptation of an actor to what is left of its stream."""

import pytest
from msgspec.structs import replace

from actors.ids import dedup_key
from actors.machine.bucket import Bucket
from actors.machine.event import Event
from actors.machine.evolve import evolve
from actors.machine.facts import Burial, Delivered, EventsNumbered, Repaired
from actors.machine.numbering import Frontier, Numbered, is_duplicate
from actors.machine.repair import repair, set_removal
from actors.machine.state import OpenEvent, State
from actors.ports import Removal
from streams.repair.acceptance import restored_revision

STATE = State(
    receiver="a.b",
    opened=True,
    frontier=Frontier(position=60, sequence=20, source=33, window=b"12345678"),
    open=(
        OpenEvent(sequence=18, position=40, id="x", stored_at=1.0),
        OpenEvent(sequence=20, position=60, id="y", stored_at=2.0),
    ),
    burials=(Burial(position=39, reason="expired"), Burial(position=59, reason="expired")),
    bucket=Bucket(3.0, 5.0, 2),
    parked=True,
)


def repaired(state: State, position: int) -> Repaired | None:
    return repair(state, position=position, gap=512, at=9.0, epoch=7)


def test_events_beyond_are_dropped_with_a_record_and_read_again() -> None:
    fact = repaired(STATE, 50)
    assert fact is not None
    assert (fact.position, fact.next_sequence, fact.dropped) == (50, 533, (59, 60))
    state = evolve(STATE, fact)
    assert state.frontier == replace(STATE.frontier, position=50, sequence=532)
    assert [each.position for each in state.open] == [40]
    assert [each.position for each in state.burials] == [39]
    assert (state.parked, state.bucket) == (True, Bucket(0.0, 9.0, 7))


def test_a_second_time_changes_nothing_but_the_numbers() -> None:
    """The command may have been cut off, and is run again."""
    first = repaired(STATE, 50)
    assert first is not None
    once = evolve(STATE, first)
    again = repaired(once, 50)
    assert again is not None
    assert again.dropped == ()
    twice = evolve(once, again)
    assert replace(twice, frontier=once.frontier) == once
    assert (twice.frontier.position, twice.frontier.sequence) == (50, 1044)


def test_an_actor_at_its_end_gets_a_gap_since_numbers_may_be_unrecorded() -> None:
    fact = repaired(STATE, 60)
    assert fact is not None
    assert evolve(STATE, fact).frontier == replace(STATE.frontier, sequence=532)
    assert repaired(State(receiver="a.b"), 60) is None


def test_a_frontier_that_lies_before_stays_there() -> None:
    fact = repaired(replace(STATE, frontier=Frontier(position=30, sequence=8)), 50)
    assert fact is not None
    assert evolve(STATE, fact).frontier.position == 50
    assert evolve(replace(STATE, frontier=Frontier(position=30, sequence=8)), fact).frontier.position == 30


def test_open_events_that_were_lost_do_not_count_as_delivered_and_may_come_again() -> None:
    state = State(receiver="a.b", opened=True)
    given = [Numbered(sequence=n, position=n, id=f"e{n}", stored_at=1.0, source=n + 30) for n in range(1, 4)]
    state = evolve(state, Delivered(receiver="a.b", events=tuple(given[:1]), at=1.0, attempt=1))
    state = evolve(state, EventsNumbered(receiver="a.b", events=tuple(given[1:])))
    fact = repaired(state, 1)
    assert fact is not None
    frontier = evolve(state, fact).frontier
    assert (frontier.window, frontier.source) == (dedup_key("e1", ""), 31)
    again = [Event(position=n, stored_at=2.0, id=f"e{n}", body=b"", source=n + 30) for n in range(1, 4)]
    assert [is_duplicate(frontier, each) for each in again] == [True, False, False]


@pytest.mark.parametrize(("recorded", "told", "expected"), [
    (300, None, 0),
    (300, Removal(7, 99.0), 7),
    (300, Removal(7, 100.0), 0),
    (5, Removal(7, 99.0), 5),  # It was not obeyed yet when the backup was made.
    (5, Removal(7, 101.0), 0),
    (0, Removal(7, 101.0), 0),
])  # fmt: skip
def test_removals_are_counted_by_the_existing_bucket(
    recorded: int, told: Removal | None, expected: int
) -> None:
    """The backup was made at 100, so the new bucket contains every removal from before that."""
    state = State(receiver="a.b", opened=True, removal=recorded)
    fact = set_removal(state, restored=restored_revision(told, 100.0), at=200.0)
    assert (state if fact is None else evolve(state, fact)) == replace(state, removal=expected)
    assert (fact is None) == (recorded == expected)
