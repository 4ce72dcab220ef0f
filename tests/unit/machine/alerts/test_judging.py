"""Alerts about a receiver: when they are raised and when they are over, and that they cannot flood."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.configuration.policy import AlertLimits, Offline, Policy
from actors.ids import ALERT_TYPES
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.alerts.judging import KINDS, alert_changes, last_raised_at
from actors.machine.evolve import evolve
from actors.machine.numbering import Numbered
from actors.machine.state import UNPUBLISHED_ALERTS_MAX, State
from tests.unit.worlds.values import policy

RECEIVER = "acme.billing"
START = 1_800_000_000.0
LIMITS = AlertLimits()
GOOD = State(receiver=RECEIVER, opened=True)
FAILING = replace(GOOD, failing_since=START)
EVENT = Numbered(sequence=1, position=1, id="e", stored_at=START)


def seen(**members: Any) -> c.JudgeAlerts:
    return c.JudgeAlerts(limits=LIMITS, **({"watched_since": START} | members))


ABOUT_ALERT = f"{ALERT_TYPES}failing"
NOTHING_WAITS = seen()
ONE_WAITS = seen(waiting_min=1, waiting_max=1)


def failed(after_s: float, **members: Any) -> f.AttemptFailed:
    """An attempt that failed so many seconds after the first one that did."""
    return f.AttemptFailed(
        receiver=RECEIVER, events=(EVENT,), at=START + after_s, attempt=2, error="HTTP 503", **members
    )


def judged(
    state: State, after_s: float, found: c.JudgeAlerts = ONE_WAITS, configured: Policy | None = None
) -> list[tuple[str, str]]:
    """The changes that are found after so many seconds: kind and tag."""
    facts = alert_changes(state, configured or policy(), found, START + after_s)
    return [(each.alert, str(each.__struct_config__.tag)) for each in facts if isinstance(each, f.AlertFact)]


def after_round(state: State, after_s: float, found: c.JudgeAlerts = ONE_WAITS) -> State:
    for fact in alert_changes(state, policy(), found, START + after_s):
        state = evolve(state, fact)
    return state


def test_a_receiver_is_failing_after_a_minute_and_offline_later() -> None:
    assert judged(FAILING, 59) == []
    assert judged(FAILING, 60) == [("failing", "alert_raised")]
    raised = after_round(FAILING, 60)
    assert judged(raised, 299) == []
    assert judged(raised, 300) == [("offline", "alert_raised")]


@pytest.mark.parametrize(("last", "told"), [
    (failed(0), False), (failed(59), False), (failed(60), True), (failed(60, rejected=True), False),
])  # fmt: skip
def test_an_outage_of_ours_is_not_a_failure_of_the_receiver(last: f.AttemptFailed, told: bool) -> None:
    """A proof is an attempt that failed late enough, or an owner that was there while an event waited."""
    expected = [("failing", "alert_raised")] if told else []
    state, limits_s = replace(FAILING, last=last), 7200
    assert judged(state, limits_s, NOTHING_WAITS, policy(offline=Offline(after_s=9000))) == expected
    came = seen(waiting_min=1, waiting_max=1, watched_since=START + limits_s - 59)
    assert judged(state, limits_s, came, policy(offline=Offline(after_s=9000))) == expected
    came = replace(came, watched_since=START + limits_s - 60)
    assert judged(state, limits_s, came, policy(offline=Offline(after_s=9000))) == [
        ("failing", "alert_raised")
    ]


def test_a_failing_receiver_that_has_its_alert_may_leave_memory_until_that_ends() -> None:
    """Otherwise each dead receiver would stay in memory without end."""
    assert not FAILING.is_unfinished
    raised = replace(after_round(FAILING, 300), unpublished_alerts=())
    assert not raised.is_unfinished
    assert replace(raised, failing_since=None).is_unfinished


def test_a_disabled_receiver_that_has_its_alert_may_leave_memory_until_that_ends() -> None:
    disabled = replace(GOOD, disabled="gone", disabled_at=START)
    assert disabled.is_unfinished
    raised = replace(after_round(disabled, 1), unpublished_alerts=())
    assert not raised.is_unfinished
    assert replace(raised, disabled="").is_unfinished


def test_a_receiver_that_is_disabled_after_its_removal_may_be_forgotten() -> None:
    """An attempt may end after that, and no alert comes of it."""
    removed = State(receiver=RECEIVER, removed_at=START, disabled="gone", failing_since=START)
    assert not removed.is_unfinished
    late = evolve(removed, dead_letter(START + 1))
    assert (late.dead_letter_at, alert_changes(late, None, seen(), START + 2)) == (0.0, [])


def test_a_dead_letter_of_a_removed_receiver_raises_no_alert_when_it_is_put_again() -> None:
    removal = f.Removed(receiver=RECEIVER, at=START + 1, position=9, next_sequence=2)
    removed = evolve(evolve(GOOD, dead_letter(START)), removal)
    again = evolve(removed, f.Opened(receiver=RECEIVER, at=START + 2, position=9))
    assert judged(again, 5) == []


@pytest.mark.parametrize(
    ("reason", "why"),
    [("gone", "it answered 410"), ("asked", "it answered angarium-disable"),
     ("failing", "it failed for too long")],
)  # fmt: skip
def test_the_alert_says_why_a_receiver_is_disabled(reason: str, why: str) -> None:
    (raised,) = alert_changes(replace(GOOD, disabled=reason), policy(), seen(), START)
    assert isinstance(raised, f.AlertRaised)
    assert raised.why == why


def test_an_owner_whose_clock_was_ahead_silences_no_later_alert() -> None:
    ahead = after_round(replace(FAILING, failing_since=START + 864_000), 864_100)
    recovered = after_round(replace(ahead, failing_since=None), 0)
    assert last_raised_at(recovered, START + 60) == 0.0
    assert last_raised_at(recovered, START + 900_000) == START + 864_100
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


def test_a_disabled_receiver_begins_no_failure() -> None:
    assert judged(replace(FAILING, disabled="failing"), 1000) == [("disabled", "alert_raised")]


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


def dead_letter(at: float, *event_types: str, reason: str = "expired", number: int = 1) -> f.DeadLettered:
    events = tuple(
        replace(EVENT, sequence=number + place, position=number + place, type=event_type)
        for place, event_type in enumerate(event_types or ("order",))
    )
    return f.DeadLettered(receiver=RECEIVER, events=events, at=at, reason=reason)


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
    dead_letter(START, reason="skipped"), dead_letter(START, ABOUT_ALERT),
    dead_letter(START, ABOUT_ALERT, ABOUT_ALERT),
])  # fmt: skip
def test_dead_letters_that_are_asked_for_or_about_alerts_raise_no_alert(letter: f.DeadLettered) -> None:
    """Two receivers of alerts that are down would otherwise cause alerts about each other without end."""
    assert judged(evolve(GOOD, letter), 5) == []


def test_a_dead_letter_is_an_alert_though_another_with_it_is_about_an_alert() -> None:
    letters = evolve(GOOD, dead_letter(START, ABOUT_ALERT, "order"))
    assert judged(letters, 5) == [("dead_letters", "alert_raised")]


def test_an_alert_about_dead_letters_that_is_told_late_says_when_the_last_one_was() -> None:
    """A node may come back after hours, or the alert before was too recent."""
    state = evolve(evolve(GOOD, dead_letter(START)), dead_letter(START + 10, number=2))
    (raised,) = alert_changes(state, policy(), seen(), START + 7210)
    assert isinstance(raised, f.AlertRaised)
    assert (raised.why, raised.since) == (
        "an event was given up; 2 in total, the last 2h ago", START + 10
    )  # fmt: skip


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
    ).is_unfinished


def test_owed_events_bring_a_receiver_back_and_are_bounded() -> None:
    state = after_round(FAILING, 300)
    assert [each.number for each in state.unpublished_alerts] == [1, 2]
    assert state.is_unfinished
    assert state.wakes_at == 0.0
    published = evolve(state, f.AlertsPublished(receiver=RECEIVER, number=1))
    assert [each.number for each in published.unpublished_alerts] == [2]
    full = replace(state, unpublished_alerts=state.unpublished_alerts * (UNPUBLISHED_ALERTS_MAX // 2))
    assert judged(replace(full, failing_since=None), 301) == []


def test_an_outage_of_the_proxy_raises_no_alert_about_a_receiver() -> None:
    refused = f.AttemptFailed(receiver=RECEIVER, events=(), at=START + 5, attempt=2, ours=True)
    state = replace(FAILING, last=refused)
    assert judged(state, 10**6) == []
    there = seen(waiting_min=1, waiting_max=1, watched_since=START - 1000)
    assert judged(replace(state, failing_since=START - 54), 10**6, there) == []
    assert judged(replace(state, failing_since=START - 55), 10**6, there) == [("failing", "alert_raised")]


@given(st.lists(st.tuples(st.booleans(), st.floats(0.1, 400)), min_size=1, max_size=60))
def test_a_flapping_receiver_raises_each_alert_once_an_interval(
    course: list[tuple[bool, float]],
) -> None:
    state, now, facts = GOOD, 0.0, list[f.AlertFact]()
    for good, passed_s in course:
        now += passed_s
        since = None if good else START + now - 1000
        state = replace(state, failing_since=since, disabled="" if good else "failing", unpublished_alerts=())
        found = alert_changes(state, policy(), seen(waiting_max=1, watched_since=0.0), START + now)
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
