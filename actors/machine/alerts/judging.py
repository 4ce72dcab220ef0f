"""Judges which alerts about a receiver begin or end.

Each kind is raised at a limit, and is over only when things are clearly better: between the two it stays as
it is. It is raised again at least `interval_s` after the last time. So a receiver that flaps makes one pair
of facts and events for each kind in that time, however often it flaps.

| kind | raised when | over when |
| --- | --- | --- |
| `failing` | no success for `failing_after_s`, while it fails | it succeeded, or an operator resumed it |
| `offline` | the same for `offline.after_s` of its configuration | the same |
| `disabled` | it is disabled | it was resumed, or has another URL |
| `behind` | so much of `backlog_max` is used, or its oldest event is that old | both are below the half |
| `dead_letters` | an event was given up | none was for `dead_letters_quiet_s` |
| `misconfigured` | events wait, and it never had a valid configuration | it has one, or none wait |

While an operator pauses the receiver, `failing` and `offline` stay as they are. A removal ends all of them.
"""

import math
from collections.abc import Callable
from typing import get_args

from msgspec import Struct

from actors.configuration.policy import Policy
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.state import UNPUBLISHED_ALERTS_MAX, State

KINDS: tuple[f.AlertKind, ...] = get_args(f.AlertKind)
WHY_LENGTH_MAX = 200


class Assessment(Struct, frozen=True, gc=False):
    """An assessment of one kind: it is `bad`, or clearly better; why, and since when, if that is known."""

    bad: bool
    why: str
    since: float | None = None


Judge = Callable[[State, Policy, c.JudgeAlerts, float], Assessment | None]
"""Judges one kind; None if the alert stays as it is."""


def alert_changes(state: State, policy: Policy | None, seen: c.JudgeAlerts, now: float) -> list[f.Fact]:
    """The facts about the alerts that begin or end now."""
    facts, number = list[f.Fact](), state.alert_number
    alerts = {each.kind: each for each in state.alerts}
    for kind in KINDS:
        alert = alerts.get(kind)
        raised = alert is not None and alert.raised
        found = _judge(kind, state, policy, seen, now)
        if found is None or found.bad is raised:
            continue
        # An earlier owner's clock may have been ahead; then the time between alerts is over.
        since_raised_s = now - alert.raised_at if alert is not None else math.inf
        too_soon = found.bad and 0 <= since_raised_s < seen.limits.interval_s
        if too_soon or len(state.unpublished_alerts) + len(facts) >= UNPUBLISHED_ALERTS_MAX:
            continue
        number += 1
        why = found.why[:WHY_LENGTH_MAX]
        if found.bad:
            facts.append(f.AlertRaised(
                receiver=state.receiver, alert=kind, number=number, at=now, since=found.since, why=why,
            ))  # fmt: skip
        elif alert is not None:
            facts.append(f.AlertRecovered(
                receiver=state.receiver, alert=kind, number=number, at=now,
                raised_at=alert.raised_at, why=why,
            ))  # fmt: skip
    return facts


def _judge(
    kind: f.AlertKind, state: State, policy: Policy | None, seen: c.JudgeAlerts, now: float
) -> Assessment | None:
    if kind == "misconfigured":
        return _misconfigured(state, policy, seen)
    if policy is not None:
        return _JUDGES[kind](state, policy, seen, now)
    # Without a configuration, one may only not be known yet.
    return None if state.opened else Assessment(False, "it was removed")


def _failing(state: State, policy: Policy, seen: c.JudgeAlerts, now: float) -> Assessment | None:
    return _no_success(state, policy, seen.limits.failing_after_s, now)


def _offline(state: State, policy: Policy, seen: c.JudgeAlerts, now: float) -> Assessment | None:
    return _no_success(state, policy, policy.offline.after_s, now)


def _no_success(state: State, policy: Policy, after_s: float, now: float) -> Assessment | None:
    since = state.failing_since
    if since is None:
        ended = "it accepts events again" if isinstance(state.last, f.Delivered) else "an operator ended it"
        return Assessment(False, ended)
    if state.disabled or state.paused or policy.paused or (failing_s := state.failing_s(now)) < after_s:
        return None
    error = state.last.error if isinstance(state.last, f.AttemptFailed) else ""
    return Assessment(True, f"no success for {failing_s:.0f} s" + (f"; {error}" if error else ""), since)


def _disabled(state: State, policy: Policy, seen: c.JudgeAlerts, now: float) -> Assessment:
    if not state.disabled:
        return Assessment(False, "it is not disabled any more")
    why = "it answered 410" if state.disabled == "gone" else "it failed for too long"
    return Assessment(True, why, state.disabled_at)


def _behind(state: State, policy: Policy, seen: c.JudgeAlerts, now: float) -> Assessment | None:
    limits = seen.limits
    many = behind_count(policy, limits.behind_percent)
    age_s = 0.0 if seen.oldest_at is None else now - seen.oldest_at
    if seen.waiting_min >= many:
        return Assessment(True, f"{seen.waiting_min:,} events wait, of at most {policy.backlog_max:,}")
    if age_s >= limits.behind_after_s:
        return Assessment(True, f"its oldest event has waited for {age_s:.0f} s", seen.oldest_at)
    if seen.waiting_max > many / 2 or age_s > limits.behind_after_s / 2:
        return None
    return Assessment(False, "less than half of that waits")


def behind_count(policy: Policy, percent: int) -> int:
    """The number of waiting events at which a receiver is behind."""
    return max(1, -(-policy.backlog_max * percent // 100))


def _dead_letters(state: State, policy: Policy, seen: c.JudgeAlerts, now: float) -> Assessment | None:
    if not state.dead_letter_at:
        return Assessment(False, "no event was given up")
    quiet_s = seen.limits.dead_letters_quiet_s
    if not any(each.kind == "dead_letters" and each.raised for each in state.alerts):
        why = f"{state.counters.dead:,} of its events were given up in all"
        return Assessment(True, why, state.dead_letter_at)
    if now - state.dead_letter_at < quiet_s:
        return None
    return Assessment(False, f"no event was given up for {quiet_s:.0f} s")


def _misconfigured(state: State, policy: Policy | None, seen: c.JudgeAlerts) -> Assessment | None:
    if policy is not None:
        return Assessment(False, "it has a valid configuration")
    if not state.parked:
        return Assessment(False, "no event waits")
    if seen.invalid:
        why = "it never had a valid configuration; its events wait"
        return Assessment(True, why, state.waiting_since)
    return None


_JUDGES: dict[f.AlertKind, Judge] = {
    "failing": _failing, "offline": _offline, "disabled": _disabled, "behind": _behind,
    "dead_letters": _dead_letters,
}  # fmt: skip
