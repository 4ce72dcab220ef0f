"""Alerts about a receiver: when they are raised and when they are over, and that they cannot flood."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.configuration.policy import AlertLimits, Policy
from actors.ids import ALERT_TYPES
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.alerts.judging import KINDS, alert_changes
from actors.machine.evolve import evolve
from actors.machine.numbering import Numbered
from actors.machine.state import UNPUBLISHED_ALERTS_MAX, State
from tests.unit.worlds.values import policy

RECEIVER = "acme.billing"
START = 1_800_000_000.0
LIMITS = AlertLimits()
GOOD = State(receiver=RECEIVER, opened=True)
FAILING = replace(GOOD, failing_since=START)


def seen(**members: Any) -> c.JudgeAlerts:
    return c.JudgeAlerts(limits=LIMITS, **members)


NOTHING_WAITS = seen()


def judged(
    state: State, after_s: float, found: c.JudgeAlerts = NOTHING_WAITS, configured: Policy | None = None
) -> list[tuple[str, str]]:
    """The changes that are found after so many seconds: kind and tag."""
    facts = alert_changes(state, configured or policy(), found, START + after_s)
    return [(each.alert, str(each.__struct_config__.tag)) for each in facts if isinstance(each, f.AlertFact)]


def after_round(state: State, after_s: float, found: c.JudgeAlerts = NOTHING_WAITS) -> State:
    for fact in alert_changes(state, policy(), found, START + after_s):
        state = evolve(state, fact)
    return state


def test_a_receiver_is_failing_after_a_minute_and_offline_later() -> None:
    assert judged(FAILING, 59) == []
    assert judged(FAILING, 60) == [("failing", "alert_raised")]
    raised = after_round(FAILING, 60)
    assert judged(raised, 299) == []
    assert judged(raised, 300) == [("offline", "alert_raised")]


def test_an_owner_whose_clock_was_ahead_silences_no_later_alert() -> None:
    ahead = after_round(replace(FAILING, failing_since=START + 864_000), 864_100)
    recovered = after_round(replace(ahead, failing_since=None), 0)
    assert judged(replace(recovered, failing_since=START), 60) == [("failing", "alert_raised")]


def test_a_success_ends_failing_and_offline_and_a_new_failure_alone_does_not() -> None:
    raised = after_round(FAILING, 300)
    assert judged(replace(raised, failing_since=START + 290), 301) == []
    good = replace(raised, failing_since=None)
    assert judged(good, 301) == [("failing", "alert_recovered"), ("offline", "alert_recovered")]


def test_a_paused_receiver_begins_no_failure() -> None:
    assert judged(replace(FAILING, paused=True), 1000) == []
    assert judged(FAILING, 1000, configured=policy(paused=True)) == []


def test_a_disabled_receiver_stays_disabled_until_it_is_resumed() -> None:
    disabled = after_round(replace(GOOD, disabled="gone", disabled_at=START), 1)
    assert [each.kind for each in disabled.alerts] == ["disabled"]
    assert judged(disabled, 1000) == []
    assert judged(replace(disabled, disabled=""), 1001) == [("disabled", "alert_recovered")]


@pytest.mark.parametrize(
    ("waiting", "age_s", "expected"),
    [
        ((79, 79), 0, []), ((80, 80), 0, ["behind"]), ((0, 99), 0, []), ((1, 1), 3599, []),
        ((1, 1), 3600, ["behind"]),
    ],
)  # fmt: skip
def test_a_receiver_is_behind_by_number_or_by_age(
    waiting: tuple[int, int], age_s: float, expected: list[str]
) -> None:
    """Only what certainly waits counts."""
    found = seen(waiting_min=waiting[0], waiting_max=waiting[1], oldest_at=START - age_s)
    assert [kind for kind, _ in judged(GOOD, 0, found, policy(backlog_max=100))] == expected


@pytest.mark.parametrize(
    ("waiting", "age_s", "over"),
    [((41, 41), 0, False), ((0, 41), 0, False), ((40, 40), 0, True), ((1, 1), 1801, False),
     ((1, 1), 1800, True)],
)  # fmt: skip
def test_a_receiver_is_behind_until_it_is_clearly_better(
    waiting: tuple[int, int], age_s: float, over: bool
) -> None:
    """At half the limits; a number that is not known yet ends nothing."""
    behind = after_round(GOOD, 0, seen(waiting_min=1 << 30, waiting_max=1 << 30))
    assert [each.kind for each in behind.alerts] == ["behind"]
    found = seen(waiting_min=waiting[0], waiting_max=waiting[1], oldest_at=START + 500 - age_s)
    changes = judged(behind, 500, found, policy(backlog_max=100))
    assert changes == ([("behind", "alert_recovered")] if over else [])


def dead_letter(
    at: float, *, reason: str = "expired", event_type: str = "order", number: int = 1
) -> f.DeadLettered:
    event = Numbered(sequence=number, position=number, id="e", stored_at=START, type=event_type)
    return f.DeadLettered(receiver=RECEIVER, events=(event,), at=at, reason=reason)


def test_dead_letters_are_an_alert_until_none_comes_for_an_hour() -> None:
    state = after_round(evolve(GOOD, dead_letter(START)), 5)
    assert [each.kind for each in state.alerts] == ["dead_letters"]
    state = evolve(state, dead_letter(START + 3000, number=2))
    assert judged(state, 3600) == []
    assert judged(state, 6600) == [("dead_letters", "alert_recovered")]
    quiet = after_round(state, 6600)
    assert quiet.dead_letter_at == 0.0
    assert judged(quiet, 9999) == []


@pytest.mark.parametrize("letter", [
    dead_letter(START, reason="skipped"), dead_letter(START, event_type=f"{ALERT_TYPES}failing"),
])  # fmt: skip
def test_dead_letters_that_are_asked_for_or_about_alerts_are_no_alert(letter: f.DeadLettered) -> None:
    """Two receivers of alerts that are down would otherwise cause alerts about each other without end."""
    assert judged(evolve(GOOD, letter), 5) == []


def test_a_receiver_without_a_valid_configuration_is_an_alert_only_while_events_wait() -> None:
    never_opened = State(receiver=RECEIVER, parked=True, waiting_since=START)
    assert alert_changes(never_opened, None, seen(), START) == []
    (raised,) = alert_changes(never_opened, None, seen(invalid=True), START)
    assert isinstance(raised, f.AlertRaised)
    assert raised.alert == "misconfigured"
    state = evolve(never_opened, raised)
    assert alert_changes(state, None, seen(), START + 1) == []
    assert judged(replace(state, opened=True), 1) == [("misconfigured", "alert_recovered")]


def test_a_removal_ends_all_alerts_and_a_configuration_that_is_not_known_ends_none() -> None:
    raised = after_round(replace(FAILING, disabled="failing"), 1)
    assert alert_changes(raised, None, seen(), START + 2) == []
    removed = evolve(raised, f.Removed(receiver=RECEIVER, at=START + 2, position=0, next_sequence=1))
    (over,) = alert_changes(removed, None, seen(), START + 3)
    assert isinstance(over, f.AlertRecovered)
    assert over.why == "it was removed"
    assert not evolve(
        evolve(removed, over), f.AlertsPublished(receiver=RECEIVER, number=over.number)
    ).unfinished


def test_owed_events_bring_a_receiver_back_and_are_bounded() -> None:
    state = after_round(FAILING, 300)
    assert [each.number for each in state.unpublished_alerts] == [1, 2]
    assert state.unfinished
    assert state.wakes_at == 0.0
    published = evolve(state, f.AlertsPublished(receiver=RECEIVER, number=1))
    assert [each.number for each in published.unpublished_alerts] == [2]
    full = replace(state, unpublished_alerts=state.unpublished_alerts * (UNPUBLISHED_ALERTS_MAX // 2))
    assert judged(replace(full, failing_since=None), 301) == []


def test_an_outage_of_the_proxy_raises_no_alert_about_a_receiver() -> None:
    refused = f.AttemptFailed(receiver=RECEIVER, events=(), at=START + 5, attempt=2, ours=True)
    state = replace(FAILING, last=refused)
    assert judged(state, 10**6) == []
    assert judged(replace(state, failing_since=START - 400), 10**6) != []


@given(st.lists(st.tuples(st.booleans(), st.floats(0.1, 400)), min_size=1, max_size=60))
def test_a_flapping_receiver_raises_each_alert_once_an_interval(
    course: list[tuple[bool, float]],
) -> None:
    state, now, facts = GOOD, 0.0, list[f.AlertFact]()
    for good, passed_s in course:
        now += passed_s
        since = None if good else START + now - 1000
        state = replace(state, failing_since=since, disabled="" if good else "failing", unpublished_alerts=())
        found = alert_changes(state, policy(), NOTHING_WAITS, START + now)
        for fact in found:
            assert isinstance(fact, f.AlertFact)
            facts.append(fact)
            state = evolve(state, fact)
    assert [each.number for each in facts] == list(range(1, len(facts) + 1))
    for kind in KINDS:
        of_kind = [each for each in facts if each.alert == kind]
        raised = [each for each in of_kind if isinstance(each, f.AlertRaised)]
        assert of_kind[::2] == raised
        assert all(b.at - a.at >= LIMITS.interval_s - 1e-6 for a, b in pairwise(raised))
        for begun, over in zip(of_kind[::2], of_kind[1::2], strict=False):
            assert isinstance(over, f.AlertRecovered)
            assert over.raised_at == begun.at
