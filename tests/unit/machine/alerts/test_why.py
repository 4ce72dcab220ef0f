"""Why an alert begins or ends, as people read it."""

import pytest
from msgspec.structs import replace

from actors.configuration.policy import AlertLimits
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.alerts.judging import alert_changes, no_success_text
from actors.machine.state import Alert, State
from tests.unit.worlds.values import policy

START = 1_800_000_000.0
DAY_S = 86_400
OPENED = State(receiver="acme.billing", opened=True)
FAILED = f.AttemptFailed(
    receiver="acme.billing", events=(), at=START + 2 * DAY_S, attempt=9, error="HTTP 503"
)
NOTHING = c.JudgeAlerts(limits=AlertLimits(), watched_since=START)


def whys(state: State, command: c.JudgeAlerts = NOTHING, after_s: float = 2 * DAY_S) -> dict[str, str]:
    """The reasons that are found after this time, by kind of alert."""
    facts = alert_changes(state, policy(backlog_max=100), command, START + after_s)
    return {each.alert: each.why for each in facts if isinstance(each, f.AlertFact)}


def raised(state: State, kind: f.AlertKind) -> State:
    return replace(state, alerts=(Alert(kind=kind, raised_at=START, raised=True),))


def test_a_failure_is_told_in_days_with_the_last_error() -> None:
    said = whys(replace(OPENED, failing_since=START, last=FAILED))
    assert said == dict.fromkeys(("failing", "offline"), "no success for 2d; HTTP 503")
    assert no_success_text(59, "") == "no success for 59s"


def test_the_backlog_is_told_by_number_or_by_age() -> None:
    many = c.JudgeAlerts(
        limits=AlertLimits(), watched_since=START, waiting_min=90, waiting_max=90, oldest_at=START
    )
    assert whys(OPENED, many) == {"behind": "90 of at most 100 events wait"}
    old = c.JudgeAlerts(
        limits=AlertLimits(), watched_since=START, waiting_min=1, waiting_max=1, oldest_at=START
    )
    assert whys(OPENED, old) == {"behind": "its oldest event has waited for 2d"}
    assert whys(raised(OPENED, "behind")) == {"behind": "its backlog is below half of the limits"}


@pytest.mark.parametrize("kind", ["failing", "offline", "disabled"])
def test_an_alert_that_a_new_url_ends_says_so(kind: f.AlertKind) -> None:
    assert whys(raised(OPENED, kind)) == {kind: "it was resumed, or its URL was changed"}


def test_dead_letters_are_told_with_their_number_until_none_comes() -> None:
    state = replace(OPENED, dead_letter_at=START, counters=replace(OPENED.counters, dead=1200))
    assert whys(state, after_s=5)["dead_letters"].startswith("an event was given up; 1,200 in total")
    assert whys(raised(state, "dead_letters")) == {"dead_letters": "no event was given up for 1h"}
