"""A resumed receiver: what is said of the learnt pace that it has lost."""

import pytest

from angarium.operations.control_requests.operator_actions import ResumedReceiver


@pytest.mark.parametrize(
    ("rate", "in_flight", "text"),
    [
        (4.5678, None, "; its learnt pace of 4.57 a second is forgotten"),
        (None, 3, "; its learnt pace of 3 in flight is forgotten"),
        (20.0, 2, "; its learnt pace of 20 a second and 2 in flight is forgotten"),
    ],
)
def test_a_forgotten_pace_is_named(rate: float | None, in_flight: int | None, text: str) -> None:
    resumed = ResumedReceiver(forgotten_pace={
        "effective_limit": rate, "limited_by": None if rate is None else "after_429",
        "concurrency": in_flight, "concurrency_limited_by": None if in_flight is None else "concurrency",
    })  # fmt: skip
    assert resumed.text == text


def test_without_a_learnt_pace_nothing_is_said() -> None:
    assert ResumedReceiver().text == ""
