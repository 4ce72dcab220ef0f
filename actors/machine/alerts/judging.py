"""Judges which alerts about a receiver begin or end.

Each kind is raised at a limit, and is over only when things are clearly better: between the two it stays as
it is. It is raised again at least `interval_s` after the last time. So a receiver that flaps makes one pair
of facts and events for each kind in that time, however often it flaps.

| kind | raised when | over when |
| --- | --- | --- |
| `failing` | no success for `failing_after_s`, and it was tried | it succeeded, or an operator resumed it |
| `offline` | the same for `offline.after_s` of its configuration | the same |
| `disabled` | it is disabled | it was resumed, or has another URL |
| `behind` | so much of `backlog_max` is used, or its oldest event is that old | both are below the half |
| `dead_letters` | an event was given up | none was for `dead_letters_quiet_s` |
| `misconfigured` | events wait, and it never had a valid configuration | it has one, or none wait |

While an operator pauses the receiver, `failing` and `offline` stay as they are. A removal ends all of them.

An outage of ours is no failure of the receiver. So `failing` and `offline` need an attempt that failed so
long after the first one, or an owner that could make attempts for that time while an event waited for one.
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


_ASKED = {"gone": "it answered 410", "asked": "it answered angarium-disable"}
"""Why a receiver is disabled that asked for it."""
_ACCEPTS = Assessment(False, "it accepts events again")
_ENDED = Assessment(False, "an operator ended it")
_NOT_DISABLED = Assessment(False, "it is not disabled any more")
_LITTLE_WAITS = Assessment(False, "less than half of that waits")
_NONE_GIVEN_UP = Assessment(False, "no event was given up")
_CONFIGURED = Assessment(False, "it has a valid configuration")
_NONE_WAITS = Assessment(False, "no event waits")
_REMOVED = Assessment(False, "it was removed")

Judge = Callable[[State, Policy, c.JudgeAlerts, float], Assessment | None]
"""Judges one kind; None if the alert stays as it is."""


def is_raised(state: State, kind: f.AlertKind) -> bool:
    """True if the receiver has an alert of this kind."""
    return any(each.raised for each in state.alerts if each.kind == kind)


def last_raised_at(state: State, now: float) -> float:
    """When an alert of the receiver was last raised; 0.0 if none was, or only by a clock that was ahead."""
    return max((each.raised_at for each in state.alerts if each.raised_at <= now), default=0.0)


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
    return None if state.opened else _REMOVED


def _failing(state: State, policy: Policy, seen: c.JudgeAlerts, now: float) -> Assessment | None:
    return _no_success(state, policy, seen, seen.limits.failing_after_s, now)


def _offline(state: State, policy: Policy, seen: c.JudgeAlerts, now: float) -> Assessment | None:
    return _no_success(state, policy, seen, policy.offline.after_s, now)


def _no_success(
    state: State, policy: Policy, seen: c.JudgeAlerts, after_s: float, now: float
) -> Assessment | None:
    since, last = state.failing_since, state.last
    if since is None:
        return _ACCEPTS if isinstance(last, f.Delivered) else _ENDED
    if state.disabled or state.paused or policy.paused or now - since < after_s:
        return None
    failed = last if isinstance(last, f.AttemptFailed) else None
    tried_s = failed.at - since if failed is not None and not (failed.ours or failed.rejected) else 0.0
    watched_s = now - max(since, seen.watched_since) if seen.waiting_max else 0.0
    if max(tried_s, watched_s) < after_s:
        return None
    why = f"no success for {now - since:.0f} s"
    return Assessment(True, f"{why}; {failed.error}" if failed is not None and failed.error else why, since)


def _disabled(state: State, policy: Policy, seen: c.JudgeAlerts, now: float) -> Assessment:
    if not state.disabled:
        return _NOT_DISABLED
    why = _ASKED.get(state.disabled, "it failed for too long")
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
    return _LITTLE_WAITS


def behind_count(policy: Policy, percent: int) -> int:
    """The number of waiting events at which a receiver is behind."""
    return max(1, -(-policy.backlog_max * percent // 100))


def _dead_letters(state: State, policy: Policy, seen: c.JudgeAlerts, now: float) -> Assessment | None:
    if not state.dead_letter_at:
        return _NONE_GIVEN_UP
    quiet_s = seen.limits.dead_letters_quiet_s
    if not is_raised(state, "dead_letters"):
        # It may be told late: `interval_s` after another one, or by an owner that comes after an outage.
        last = f"the last {max(0.0, now - state.dead_letter_at):.0f} s ago"
        why = f"{state.counters.dead:,} of its events were given up in all, {last}"
        return Assessment(True, why, state.dead_letter_at)
    if now - state.dead_letter_at < quiet_s:
        return None
    return Assessment(False, f"no event was given up for {quiet_s:.0f} s")


def _misconfigured(state: State, policy: Policy | None, seen: c.JudgeAlerts) -> Assessment | None:
    if policy is not None:
        return _CONFIGURED
    if not state.parked:
        return _NONE_WAITS
    if seen.invalid:
        why = "it never had a valid configuration; its events wait"
        return Assessment(True, why, state.waiting_since)
    return None


_JUDGES: dict[f.AlertKind, Judge] = {
    "failing": _failing, "offline": _offline, "disabled": _disabled, "behind": _behind,
    "dead_letters": _dead_letters,
}  # fmt: skip
