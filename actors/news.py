"""News about a receiver: it was disabled, is offline, is back, or waits for a valid configuration.

News are derived from the confirmed facts, by comparing the states before and after each. A takeover restores
these states from the journal and the snapshots, so it reports nothing twice. If an owner dies between a
fact's append and its confirmation, that one piece of news is lost.
"""

from typing import Literal

from msgspec import Struct

from actors.machine import facts as f
from actors.machine.state import State
from actors.policy import Offline, Policy

Name = Literal["disabled", "offline", "recovered", "misconfigured"]

NEWSWORTHY_FACTS = frozenset({f.AttemptFailed, f.Throttled, f.Disabled, f.Resumed, f.Retargeted, f.Parked})
"""The facts that may be news; `Delivered` may be too, if the receiver was failing."""
WHY_LENGTH_MAX = 200


class News(Struct, frozen=True, kw_only=True):
    """A change of a receiver's health: why, in words, and since when it has been failing, if it has."""

    name: Name
    receiver: str
    why: str
    since: float | None = None


def news(before: State, fact: f.Fact, after: State, policy: Policy | None, *, invalid: bool) -> News | None:
    """The news in a confirmed fact, or None.

    `invalid`: the receiver has a configuration, but never had a valid one.
    """
    after_s = (policy.offline if policy else Offline()).after_s
    match fact:
        case f.Delivered() if _was_offline(before, after_s):
            return _news(before, "recovered", "it accepts events again")
        case f.Disabled(reason=reason, at=at) if not before.disabled:
            why = "it answered 410" if reason == "gone" else _no_success(after, at)
            return _news(after, "disabled", why)
        case f.AttemptFailed(at=at) | f.Throttled(at=at):
            if _is_offline(after, at, after_s) and not _was_offline(before, after_s):
                return _news(after, "offline", _no_success(after, at))
        case f.Resumed() if before.disabled or _was_offline(before, after_s):
            return _news(before, "recovered", "it was resumed")
        case f.Retargeted() if before.disabled or _was_offline(before, after_s):
            return _news(before, "recovered", "its URL was changed")
        case f.Parked() if policy is None and invalid and not before.parked:
            return _news(after, "misconfigured", "it never had a valid configuration; its events wait")
    return None


def _news(state: State, name: Name, why: str) -> News:
    return News(name=name, receiver=state.receiver, why=why[:WHY_LENGTH_MAX], since=state.failing_since)


def _was_offline(state: State, after_s: float) -> bool:
    """True if it was offline at its last attempt, so that this was reported then."""
    return state.last is not None and _is_offline(state, state.last.at, after_s)


def _is_offline(state: State, at: float, after_s: float) -> bool:
    return state.failing_since is not None and at - state.failing_since >= after_s


def _no_success(state: State, at: float) -> str:
    duration = "" if state.failing_since is None else f"no success for {_minutes(at - state.failing_since)}"
    match state.last:
        case f.AttemptFailed(error=error):
            return f"{duration}; {error}" if duration else error
        case _:
            return duration


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"
