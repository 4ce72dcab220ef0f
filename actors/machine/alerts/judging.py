"""Judges which alerts about a receiver begin or end.

Each kind is raised at a limit, and is over only when things are clearly better: between the two it stays as
it is. It is raised again at least `interval_s` after the last time. So a receiver that flaps makes one pair
of facts and events for each kind in that time, however often it flaps.

| kind | raised when | over when |
| --- | --- | --- |
| `failing` | no success for `failing_after_s`, and it was tried | it succeeded, or an operator resumed it |
| `offline` | the same for `offline.after_s` of its configuration | the same |
| `disabled` | it is disabled | it was resumed, or has another URL |
| `behind` | `behind_percent` of `backlog_max` wait, or one event for `behind_after_s` | both are below half |
| `dead_letters` | an event was given up | none was for `dead_letters_quiet_s` |
| `misconfigured` | events wait, and no node can use its configuration | one can, or none wait |
| `handshake_failed` | one failed, and another `failing_after_s` later | one succeeded, or none is needed |

While an operator pauses the receiver, `failing`, `offline` and `handshake_failed` stay as they are. A removal
ends all alerts.

Our own outage is not the receiver's failure. So `failing` and `offline` need a failed attempt at least
`failing_after_s` (or `offline.after_s`) after the first one, or an owner that could make attempts for that
time while an event waited for one. `handshake_failed` needs a failed handshake at least `failing_after_s`
after the first one. Nodes that know alerts but no handshakes cannot read it, so it stays as it is while one
of them may take over.
"""

from collections.abc import Callable
from typing import get_args

from msgspec import Struct

from actors.configuration.policy import Policy
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.handshake.proof import current_handshake
from actors.machine.state import UNPUBLISHED_ALERTS_MAX, State
from actors.times_as_text import age_text

KINDS: tuple[f.AlertKind, ...] = get_args(f.AlertKind)
WHY_LENGTH_MAX = 200
BY_OPERATOR = "it was resumed, or its URL was changed"


class Cause(Struct, frozen=True, gc=False):
    """The cause for which an alert begins or ends: why, and since when, if that is known."""

    why: str
    since: float | None = None


Judge = Callable[[State, Policy, c.JudgeAlerts, float, bool], Cause | None]
"""Judges one kind: the cause for which it ends, if it is raised, or begins, if not; None if it stays so."""


def is_raised(state: State, kind: f.AlertKind) -> bool:
    """True if the receiver has an alert of this kind."""
    return any(each.raised for each in state.alerts if each.kind == kind)


def last_raised_at(state: State, now: float) -> float:
    """When an alert of the receiver was last raised; 0.0 if none was, or only by a clock that was ahead."""
    return max((each.raised_at for each in state.alerts if each.raised_at <= now), default=0.0)


def alert_changes(state: State, policy: Policy | None, command: c.JudgeAlerts, now: float) -> list[f.Fact]:
    """The facts about the alerts that begin or end now."""
    facts, number = list[f.Fact](), state.alert_number
    alerts = {each.kind: each for each in state.alerts}
    for kind in KINDS:
        alert = alerts.get(kind)
        raised = alert is not None and alert.raised
        cause = _judge(kind, state, policy, command, now, raised)
        if cause is None or len(state.unpublished_alerts) + len(facts) >= UNPUBLISHED_ALERTS_MAX:
            continue
        why = cause.why[:WHY_LENGTH_MAX]
        if alert is not None and alert.raised:
            number += 1
            facts.append(f.AlertRecovered(
                receiver=state.receiver, alert=kind, number=number, at=now,
                raised_at=alert.raised_at, why=why,
            ))  # fmt: skip
        # An earlier owner's clock may have been ahead; then the time between alerts is over.
        elif alert is None or not 0 <= now - alert.raised_at < command.limits.interval_s:
            number += 1
            facts.append(f.AlertRaised(
                receiver=state.receiver, alert=kind, number=number, at=now, since=cause.since, why=why,
            ))  # fmt: skip
    return facts


def _judge(
    kind: f.AlertKind, state: State, policy: Policy | None, command: c.JudgeAlerts, now: float, raised: bool
) -> Cause | None:
    if kind == "handshake_failed" and not command.all_know_handshakes:
        return None
    if kind == "misconfigured":
        return _misconfigured(state, policy, command, raised)
    if policy is not None:
        return _JUDGES[kind](state, policy, command, now, raised)
    # Without a configuration, one may only not be known yet.
    return Cause("it was removed") if raised and not state.opened else None


def _failing(state: State, policy: Policy, command: c.JudgeAlerts, now: float, raised: bool) -> Cause | None:
    return _no_success(state, policy, command, command.limits.failing_after_s, now, raised)


def _offline(state: State, policy: Policy, command: c.JudgeAlerts, now: float, raised: bool) -> Cause | None:
    return _no_success(state, policy, command, policy.offline.after_s, now, raised)


def _no_success(
    state: State, policy: Policy, command: c.JudgeAlerts, after_s: float, now: float, raised: bool
) -> Cause | None:
    since, last = state.failing_since, state.last
    if raised and since is None:
        return Cause("it accepts events again" if isinstance(last, f.Delivered) else BY_OPERATOR)
    if raised or since is None or state.disabled or state.paused or policy.paused:
        return None
    failing_s = state.failing_s(now)
    failed = last if isinstance(last, f.AttemptFailed) else None
    tried_s = failed.at - since if failed is not None and not (failed.ours or failed.rejected) else 0.0
    watched_s = min(failing_s, since + failing_s - command.watched_since) if command.waiting_max else 0.0
    if max(tried_s, watched_s) < after_s:
        return None
    error = "" if failed is None else failed.error
    return Cause(no_success_text(failing_s, error), since)


def no_success_text(seconds: float, error: str) -> str:
    """The reason of a failure: how long there was no success, and the last error."""
    return f"no success for {age_text(seconds)}" + (f"; {error}" if error else "")


def _disabled(state: State, policy: Policy, command: c.JudgeAlerts, now: float, raised: bool) -> Cause | None:
    if raised:
        return None if state.disabled else Cause(BY_OPERATOR)
    why = f.DISABLED_WHY.get(state.disabled, state.disabled)
    return Cause(why, state.disabled_at) if state.disabled else None


def _behind(state: State, policy: Policy, command: c.JudgeAlerts, now: float, raised: bool) -> Cause | None:
    limits = command.limits
    many = behind_count(policy, limits.behind_percent)
    age_s = 0.0 if command.oldest_at is None else now - command.oldest_at
    if raised:
        is_clearly_better = command.waiting_max <= many / 2 and age_s <= limits.behind_after_s / 2
        return Cause("its backlog is below half of the limits") if is_clearly_better else None
    if command.waiting_min >= many:
        return Cause(f"{command.waiting_min:,} of at most {policy.backlog_max:,} events wait")
    if age_s >= limits.behind_after_s:
        return Cause(f"its oldest event has waited for {age_text(age_s)}", command.oldest_at)
    return None


def behind_count(policy: Policy, percent: int) -> int:
    """The number of waiting events at which a receiver is behind."""
    return max(1, -(-policy.backlog_max * percent // 100))


def _dead_letters(
    state: State, policy: Policy, command: c.JudgeAlerts, now: float, raised: bool
) -> Cause | None:
    last_at, quiet_s = state.dead_letter_at, command.limits.dead_letters_quiet_s
    if raised and not last_at:
        return Cause("no event was given up")
    if raised:
        return None if now - last_at < quiet_s else Cause(f"no event was given up for {age_text(quiet_s)}")
    if not last_at:
        return None
    # It may be told late: `interval_s` after another one, or by an owner that comes after an outage.
    why = f"an event was given up; {state.counters.dead:,} in total"
    return Cause(f"{why}, the last {age_text(now - last_at)} ago", last_at)


def _misconfigured(state: State, policy: Policy | None, command: c.JudgeAlerts, raised: bool) -> Cause | None:
    waits = policy is None and state.parked
    if raised:
        return None if waits else Cause("it has a valid configuration" if policy else "no event waits")
    if not (waits and command.invalid):
        return None
    return Cause("no node can use its configuration; its events wait", state.waiting_since)


def _handshake_failed(
    state: State, policy: Policy, command: c.JudgeAlerts, now: float, raised: bool
) -> Cause | None:
    if policy.handshake == "none":
        return Cause("it needs no handshake") if raised else None
    known = current_handshake(state, policy)
    if raised and known is None:
        return Cause("its URL or its secrets were changed")
    if known is None or known.verified:
        return Cause("it proved itself") if raised else None
    since = known.failing_since
    if raised or since is None or state.disabled or state.paused or policy.paused:
        return None
    if known.failed_at - since < command.limits.failing_after_s:
        return None
    return Cause(f"no proof for {age_text(now - since)}; {known.error}", since)


_JUDGES: dict[f.AlertKind, Judge] = {
    "failing": _failing, "offline": _offline, "disabled": _disabled, "behind": _behind,
    "dead_letters": _dead_letters, "handshake_failed": _handshake_failed,
}  # fmt: skip
