"""The protocol of timed events, explored as a whole: each rule is needed, and they do."""

import pytest

from tests.unit.timed.model import RULES, explore


def test_no_interleaving_loses_or_repeats_an_event_or_delivers_a_cancelled_one() -> None:
    problem, states = explore()
    assert problem == ""
    assert states > 1000


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    problem, _ = explore(without=rule)
    assert problem
