"""The fold of a receiver's alerts."""

from msgspec.structs import replace

from actors.ids import is_alert_type
from actors.machine import facts as f
from actors.machine.state import Alert, State

ASKED_FOR_REASONS = frozenset({"skipped", f.OUTSIDE_REGION})
"""The reasons of events that an operator wanted to be given up, at once or by a rule."""


def after_alert(state: State, fact: f.AlertFact | f.AlertsPublished) -> State:
    """The state after an alert was raised, recovered or published; publishing clears what was owed."""
    if isinstance(fact, f.AlertsPublished):
        unpublished = (each for each in state.unpublished_alerts if each.number > fact.number)
        return replace(state, unpublished_alerts=tuple(unpublished))
    raised = isinstance(fact, f.AlertRaised)
    before = next((each for each in state.alerts if each.kind == fact.alert), None)
    raised_at = fact.at if raised or before is None else before.raised_at
    others = (each for each in state.alerts if each.kind != fact.alert)
    ends_dead_letters = fact.alert == "dead_letters" and not raised
    return replace(
        state,
        alerts=(*others, Alert(kind=fact.alert, raised_at=raised_at, raised=raised)),
        alert_number=fact.number,
        unpublished_alerts=(*state.unpublished_alerts, fact),
        dead_letter_at=0.0 if ends_dead_letters else state.dead_letter_at,
    )


def last_dead_letter_at(state: State, fact: f.DeadLettered) -> float:
    """The time of the last dead letter that an alert is about, including these.

    One that an operator asked for is not, nor one of a receiver that was removed. Nor is an event about an
    alert: receivers of alerts that are down would cause alerts about each other without end.
    """
    is_asked_for = fact.reason in ASKED_FOR_REASONS or not state.opened
    if is_asked_for or all(is_alert_type(each.type) for each in fact.events):
        return state.dead_letter_at
    return fact.at
