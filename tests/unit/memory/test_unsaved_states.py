"""A state is unsaved until a snapshot holds it, and a newer one replaces it."""

import pytest

from actors.machine.state import State
from actors.memory.unsaved_states import UnsavedStates

OLD, NEW, OTHER = State(receiver="acme.billing"), State(receiver="acme.billing"), State(receiver="acme.crm")


@pytest.fixture
def unsaved() -> UnsavedStates:
    states = UnsavedStates()
    states.changed[OLD.receiver] = OLD
    return states


def test_a_state_is_unsaved_while_it_is_being_written(unsaved: UnsavedStates) -> None:
    assert unsaved.take() == {OLD.receiver: OLD}
    assert unsaved.get(OLD.receiver) is OLD
    assert unsaved.receivers == {OLD.receiver}
    assert unsaved.get(OTHER.receiver) is None


def test_a_written_state_is_no_longer_unsaved(unsaved: UnsavedStates) -> None:
    taken = unsaved.take()
    unsaved.changed[OTHER.receiver] = OTHER
    assert unsaved.written() == taken
    assert (unsaved.get(OLD.receiver), unsaved.receivers) == (None, {OTHER.receiver})


def test_a_state_that_changes_while_it_is_being_written_is_taken_again(unsaved: UnsavedStates) -> None:
    unsaved.take()
    unsaved.changed[NEW.receiver] = NEW
    assert unsaved.get(NEW.receiver) is NEW
    unsaved.written()
    assert unsaved.take()[NEW.receiver] is NEW


def test_after_a_failed_write_the_newest_states_are_unsaved(unsaved: UnsavedStates) -> None:
    unsaved.changed[OTHER.receiver] = OTHER
    unsaved.take()
    unsaved.changed[NEW.receiver] = NEW
    unsaved.take_back()
    again = unsaved.take()
    assert again[NEW.receiver] is NEW
    assert again.keys() == {NEW.receiver, OTHER.receiver}
