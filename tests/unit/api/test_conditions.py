"""Conditions: a condition fails if another client made a change first."""

import pytest

from angarium.api.problems import ProblemRaised
from angarium.api.requests.conditions import Condition, result_if_met
from angarium.operations.failures import NotDone

CHANGED = NotDone(kind="conflict", text="acme.billing has changed meanwhile")


@pytest.mark.parametrize(
    ("asked", "status"), [(Condition(), 409), (Condition(7), 412), (Condition(exists=True), 412)]
)
def test_only_a_stated_condition_can_fail(asked: Condition, status: int) -> None:
    with pytest.raises(ProblemRaised) as raised:
        result_if_met(CHANGED, asked)
    assert raised.value.problem.status == status
