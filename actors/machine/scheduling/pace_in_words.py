"""The learnt pace of a receiver for people: as a part of its live state, and in words."""

from typing import TypedDict

from actors.configuration.policy import Policy
from actors.machine.pace.pace import Pace
from actors.machine.scheduling.learnt_pace import pace_limits
from actors.machine.state import State

_REASONS = {
    "headers": "its headers say that little is left",
    "after_429": "lowered after a 429; it rises while answers are good",
}


class PaceState(TypedDict):
    """The learnt limits of a receiver that are below its configured ones; null where none is.

    `effective_limit` attempts a second, and `concurrency` in flight, each with the member of `adaptive` that
    set it.
    """

    effective_limit: float | None
    limited_by: str | None
    concurrency: int | None
    concurrency_limited_by: str | None


def pace_state(state: State, policy: Policy | None, now: float) -> PaceState | None:
    """The learnt limits as JSON; None if nothing that was learnt limits the receiver."""
    if policy is None:
        return None
    limits = pace_limits(state, policy, now)
    per_second = 0.0 if limits.resumes_at else limits.per_second
    if per_second is not None and state.limit is not None:
        per_second = min(per_second, state.limit.per_second)
    if per_second is None and limits.in_flight is None:
        return None
    return {
        "effective_limit": None if per_second is None else round(per_second, 6),
        "limited_by": None if per_second is None else limits.limited_by,
        "concurrency": limits.in_flight,
        "concurrency_limited_by": None if limits.in_flight is None else limits.in_flight_by,
    }


def pace_words(state: State, policy: Policy, now: float) -> str:
    """Say which rate was learnt, and why: `its learnt rate of 5 a second (lowered after a 429; …)`."""
    limits = pace_limits(state, policy, now)
    reason = _reason(state.pace, limits.limited_by)
    return f"its learnt rate of {limits.per_second or 0:.3g} a second ({reason})"


def _reason(pace: Pace | None, limited_by: str) -> str:
    """The reason of a learnt rate; `smart` has one before the receiver has shown what it cannot take."""
    if limited_by != "smart":
        return _REASONS.get(limited_by, limited_by)
    if pace is None or pace.probed is None or not pace.probed.ceiling:
        return "it has had no trouble so far, and grows"
    cause = "slower answers" if pace.probed.slow else "a refusal"
    return f"lowered after {cause}; it rises while answers are good"


def lesson_words(
    pace: Pace, per_second: float | None, limited_by: str, in_flight: int | None, in_flight_by: str
) -> str:
    """Say what was learnt at some time: `learnt rate of 5 a second (lowered after a 429; …)`."""
    said = list[str]()
    if per_second == 0:
        said.append("paced to nothing for a while: its headers say that nothing is left")
    elif per_second is not None:
        said.append(f"learnt rate of {per_second:.3g} a second ({_reason(pace, limited_by)})")
    if in_flight is not None:
        said.append(f"{in_flight} attempts at a time, by {in_flight_by}")
    return "; ".join(said) or "no learnt rate holds it back any more"


def throttled_words(state: State, now: float) -> str:
    """Say why the receiver is throttled: by its last answer, or by headers that said that nothing is left."""
    told, last = None if state.pace is None else state.pace.told, state.last
    if told is not None and told.per_second == 0 and told.until == state.throttled_until > now:
        return "its headers say that nothing is left"
    return f"it answered {last.status}" if last and last.status else "as it asked"
