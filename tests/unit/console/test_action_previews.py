"""Actions that the console offers on a receiver."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from angarium.console.pages.action_previews import available_actions
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
