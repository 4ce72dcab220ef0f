"""Folding facts up to a moment: when facts without a time happened."""

import msgspec
import pytest

from actors.machine import facts as f
from angarium.ledger.batch import milliseconds
from angarium.ledger.fold import fold
from tests.support.ledgers import NOW, RECEIVER, delivered, numbered, opens

FLUSHED = NOW + 20
ACCEPTED = f.EventsNumbered(receiver=RECEIVER, events=(numbered(1),))


def settled(*facts: f.Fact, until: float) -> int:
    """The last settled number as of that time, of facts that were flushed together."""
    rows = [
        (1, milliseconds(NOW), msgspec.json.encode([opens()]).decode()),
        (2, milliseconds(FLUSHED), msgspec.json.encode(list(facts)).decode()),
    ]
    moment = fold(RECEIVER, None, rows, milliseconds(until))
    return moment.state.settled_sequence


@pytest.mark.parametrize("first", [(), (ACCEPTED,)])
def test_a_fact_is_folded_from_its_own_time(first: tuple[f.Fact, ...]) -> None:
    """A first fact without a time is folded with the next one."""
    facts = (*first, delivered(1, NOW + 10))
    assert settled(*facts, until=NOW + 9.9) == 0
    assert settled(*facts, until=NOW + 10) == 1


def test_a_clock_that_is_ahead_does_not_delay_facts_without_a_time() -> None:
    rows = [(1, milliseconds(NOW), msgspec.json.encode([opens()]).decode())]
    rows.append((2, milliseconds(FLUSHED), msgspec.json.encode([ACCEPTED, delivered(1, NOW + 90)]).decode()))
    assert fold(RECEIVER, None, rows, milliseconds(FLUSHED)).state.open
    assert fold(RECEIVER, None, rows, milliseconds(NOW + 89)).state.settled_sequence == 0
    assert fold(RECEIVER, None, rows, milliseconds(NOW + 90)).state.settled_sequence == 1
