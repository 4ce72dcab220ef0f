"""The part of the stream that an actor still needs; it stays correct once found."""

from actors.machine.facts import Burial
from actors.machine.numbering import Frontier
from actors.machine.state import OpenEvent, State
from actors.memory.retention import OUTDATED_MAX, NeededPosition, Retention


def state(frontier: int, receiver: str = "acme.a", **more: object) -> State:
    return State(receiver=receiver, frontier=Frontier(position=frontier), **more)  # type: ignore[arg-type]


def opened(position: int) -> tuple[OpenEvent, ...]:
    return (OpenEvent(sequence=1, position=position, id="a", stored_at=0.0),)


def lowest(needs: Retention, floor: int, *states: State) -> NeededPosition:
    for each in states:
        needs.update(each)
    return needs.lowest(floor)


def test_if_no_event_waits_the_floor_is_needed() -> None:
    assert lowest(Retention(), 41, state(7)) == NeededPosition(42)


def test_open_and_unburied_events_need_their_positions() -> None:
    owed = (Burial(position=6, reason="expired"),)
    states = [state(9, open=opened(5)), state(9, "acme.b", burials=owed)]
    assert lowest(Retention(), 41, *states) == NeededPosition(5, "acme.a")
    assert lowest(Retention(), 41, *states[1:]) == NeededPosition(6, "acme.b")


def test_a_parked_event_may_be_anywhere_beyond_the_frontier_until_it_is_found() -> None:
    needs, parked = Retention(), state(7, parked=True)
    assert lowest(needs, 41, parked) == NeededPosition(8, "acme.a", exact=False)
    needs.note_oldest("acme.a", 30)
    assert lowest(needs, 41, parked) == NeededPosition(30, "acme.a")
    assert lowest(needs, 20, parked) == NeededPosition(21)


def test_a_found_position_is_dropped_once_the_frontier_is_there() -> None:
    needs = Retention()
    needs.note_oldest("acme.a", 30)
    assert lowest(needs, 41, state(30, parked=True)) == NeededPosition(31, "acme.a", exact=False)
    assert lowest(needs, 41, state(30)) == NeededPosition(42)
    assert lowest(needs, 41, state(35, parked=True)) == NeededPosition(36, "acme.a", exact=False)


def test_an_open_event_of_a_parked_actor_comes_first() -> None:
    needs = Retention()
    needs.note_oldest("acme.a", 30)
    assert lowest(needs, 41, state(7, parked=True, open=opened(7))) == NeededPosition(7, "acme.a")


def test_settled_messages_are_not_needed() -> None:
    needs = Retention()
    assert lowest(needs, 41, state(9, open=opened(5)), state(9, "acme.b", open=opened(7))).position == 5
    assert lowest(needs, 41, state(9)) == NeededPosition(7, "acme.b")
    assert lowest(needs, 41, state(9, "acme.b")) == NeededPosition(42)


def test_receivers_that_need_a_message_below_a_position_are_found() -> None:
    needs = Retention()
    lowest(needs, 41, state(9, open=opened(5)), state(9, "acme.b", open=opened(7)))
    assert needs.below(7) == ["acme.a"]
    assert needs.below(8) == ["acme.a", "acme.b"]


def test_outdated_places_take_no_room() -> None:
    needs = Retention()
    needs.update(state(2, "acme.stuck", open=opened(1)))
    for position in range(2, 3 * OUTDATED_MAX):
        needs.update(state(position, open=opened(position)))
    assert len(needs._lowest) < OUTDATED_MAX + 8
    assert needs.lowest(1 << 40) == NeededPosition(1, "acme.stuck")
