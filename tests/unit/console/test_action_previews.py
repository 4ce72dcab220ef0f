"""Actions that the console offers on a receiver."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from angarium.console.pages.action_previews import ACTION_BUTTONS, available_actions, preview_of
from angarium.console.rendering.rates import learnt_rate, rates_in_force
from angarium.console.sessions import ConsoleSession
from angarium.operations.control_requests.inspection import StateDocument

SESSION = cast(ConsoleSession, SimpleNamespace(may={"manage"}.__contains__))
LEARNT = {"effective_limit": 0.3, "limited_by": "after_429"}


@pytest.mark.parametrize(
    ("phase", "pace", "is_offered"),
    [
        ("active", None, False),
        ("active", LEARNT, True),
        ("idle", LEARNT, True),
        ("throttled", None, True),
        ("paused", None, True),
    ],
)
def test_a_receiver_can_be_resumed_if_that_changes_anything(
    phase: str, pace: dict[str, Any] | None, is_offered: bool
) -> None:
    """To resume a receiver that is sending forgets the pace that its answers taught."""
    live = cast(StateDocument, {"phase": phase, "pace": pace, "backlog": 0, "handshake": None})
    assert ("resume" in [each.action for each in available_actions(SESSION, live)]) == is_offered


def bucket(limit: float, in_force: float, per: str = "second", **more: Any) -> dict[str, Any]:
    """The tokens of a limit, as the live state has them."""
    return {"limit": limit, "effective_limit": in_force, "per": per, "burst": 20, "tokens": 1.0} | more


FORGOTTEN = "5 events wait. Its learnt pace of 1.31 a second is forgotten: "
PACE = {"effective_limit": 1.30963, "limited_by": "after_429", "concurrency": None}
FAST = bucket(10, 9, margin=0.9, burst=3)
SEVERAL = bucket(500, 78.5778, "minute", margin=0.9, others=[FAST])


@pytest.mark.parametrize(
    ("tokens", "pace", "says"),
    [
        (bucket(20, 1.30963), PACE, f"{FORGOTTEN}up to 20 a second are sent, 20 of them at once."),
        (SEVERAL, PACE, f"{FORGOTTEN}up to 9 a second and 450 a minute are sent, 3 of them at once."),
        (None, PACE, f"{FORGOTTEN}events are sent as fast as it answers."),
        (bucket(20, 20), None, "5 events wait. Sending begins at once, at most 20 a second."),
        (None, None, "5 events wait. Sending begins at once."),
    ],
)
def test_a_resume_announces_the_rate_after_its_pace_is_forgotten(
    tokens: dict[str, Any] | None, pace: dict[str, Any] | None, says: str
) -> None:
    live = cast(StateDocument, {"backlog": 5, "bucket": tokens, "pace": pace})
    assert preview_of(ACTION_BUTTONS["resume"], live).sentences == [says]


@pytest.mark.parametrize(
    ("tokens", "pace", "rates", "learnt"),
    [
        (
            bucket(10, 9, margin=0.9, others=[bucket(500, 450, "minute")]),
            None,
            ["9 a second", "450 a minute"],
            None,
        ),
        (SEVERAL, PACE, ["9 a second", "78.6 a minute (learnt)"], "1.3 a second (after 429)"),
        (None, {"effective_limit": 12.7, "limited_by": "smart"}, [], "12.7 a second (smart)"),
        (bucket(3, 3, "hour"), {"effective_limit": None, "limited_by": None}, ["3 an hour"], None),
    ],
)
def test_all_rates_in_force_are_shown_and_which_is_learnt(
    tokens: dict[str, Any] | None, pace: dict[str, Any] | None, rates: list[str], learnt: str | None
) -> None:
    live = cast(StateDocument, {"bucket": tokens, "pace": pace})
    assert (rates_in_force(live), learnt_rate(live)) == (rates, learnt)
