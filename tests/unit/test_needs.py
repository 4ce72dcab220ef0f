"""What an actor still needs of the stream, and that what was found out of it stays true."""

from actors.facts import Burial
from actors.needs import Needed, Needs
from actors.numbering import Frontier
from actors.state import Open, State


def state(frontier: int, receiver: str = "acme.a", **more: object) -> State:
    return State(receiver=receiver, frontier=Frontier(position=frontier), **more)  # type: ignore[arg-type]


def opened(position: int) -> tuple[Open, ...]:
    return (Open(sequence=1, position=position, id="a", stored_at=0.0),)


def test_nobody_but_the_floor() -> None:
    assert Needs().lowest(41, [state(7)]) == Needed(42)


def test_what_is_open_or_owed_a_burial_lies_where_it_says() -> None:
    owed = (Burial(position=6, reason="expired"),)
    states = [state(9, open=opened(5)), state(9, "acme.b", burials=owed)]
    assert Needs().lowest(41, states) == Needed(5, "acme.a")
    assert Needs().lowest(41, states[1:]) == Needed(6, "acme.b")


def test_what_waits_in_the_stream_lies_somewhere_beyond_the_frontier_until_it_is_found() -> None:
    needs, parked = Needs(), state(7, parked=True)
    assert needs.lowest(41, [parked]) == Needed(8, "acme.a", exact=False)
    needs.found("acme.a", 30)
    assert needs.lowest(41, [parked]) == Needed(30, "acme.a")
    assert needs.lowest(20, [parked]) == Needed(21)


def test_what_was_found_is_over_once_the_frontier_is_there() -> None:
    needs = Needs()
    needs.found("acme.a", 30)
    assert needs.lowest(41, [state(30, parked=True)]) == Needed(31, "acme.a", exact=False)
    assert needs.lowest(41, [state(30)]) == Needed(42)
    assert needs.lowest(41, [state(35, parked=True)]) == Needed(36, "acme.a", exact=False)


def test_an_open_event_of_a_parked_actor_comes_first() -> None:
    needs = Needs()
    needs.found("acme.a", 30)
    assert needs.lowest(41, [state(7, parked=True, open=opened(7))]) == Needed(7, "acme.a")
