"""Changes of a receiver's health: it was disabled, is offline, is back, or may not get events yet.

They are derived from the confirmed facts, by comparing the states before and after each. A takeover restores
these states from the journal and the snapshots, so it reports nothing twice. If an owner dies between a
fact's append and its confirmation, that one change is not reported.

That a receiver is offline is no fact: it counts as offline once it has failed for long enough, and the next
attempt may be an hour away. `actors.memory.failing_receivers` reports it in time.
"""

from typing import Literal

from msgspec import Struct

from actors.configuration.policy import Policy
from actors.machine import facts as f
from actors.machine.alerts.judging import no_success_text
from actors.machine.state import State

HealthChangeName = Literal["disabled", "offline", "recovered", "misconfigured", "unverified", "verified"]

FACTS_THAT_CHANGE_HEALTH = frozenset({
    f.AttemptFailed, f.Disabled, f.Paused, f.Resumed, f.Retargeted, f.Parked, f.Removed, f.Forgot,
    f.HandshakeSucceeded, f.HandshakeFailed,
})  # fmt: skip
"""The facts that may change its health, or begin or end a failure; `Delivered` may too, if the receiver was
failing."""
WHY_LENGTH_MAX = 200


class HealthChange(Struct, frozen=True, kw_only=True):
    """A change of a receiver's health: why, in words, and since when it has been failing, if it has."""

    name: HealthChangeName
    receiver: str
    why: str
    since: float | None = None


def health_change(
    before: State, fact: f.Fact, after: State, policy: Policy | None, *, invalid: bool, was_offline: bool
) -> HealthChange | None:
    """The change of health in a confirmed fact, or None.

    - `invalid`: the receiver has a configuration, but never had a valid one.
    - `was_offline`: it was reported as offline.
    """
    receiver, since = before.receiver, before.failing_since
    unproven_since = before.handshake.failing_since if before.handshake else None
    match fact:
        case f.Delivered() if was_offline:
            return change_of_health("recovered", receiver, "it accepts events again", since)
        case f.Disabled(reason=reason, at=at) if not before.disabled:
            why = _why_failing(after, at) if reason == "failing" else f.DISABLED_WHY.get(reason, reason)
            return change_of_health("disabled", receiver, why, after.failing_since)
        case f.Resumed() if before.disabled or was_offline:
            return change_of_health("recovered", receiver, "it was resumed", since)
        case f.Retargeted() if before.disabled or was_offline:
            return change_of_health("recovered", receiver, "its URL was changed", since)
        case f.HandshakeFailed(error=error) if unproven_since is None and after.handshake is not None:
            begins = after.handshake.failing_since
            why = f"the handshake failed: {error}"
            return None if begins is None else change_of_health("unverified", receiver, why, begins)
        case f.HandshakeSucceeded() if unproven_since is not None:
            return change_of_health("verified", receiver, "it proved itself", unproven_since)
        case f.Parked() if policy is None and invalid and not before.parked:
            why = "no node can use its configuration; its events wait"
            return change_of_health("misconfigured", receiver, why, after.failing_since)
    return None


def change_of_health(name: HealthChangeName, receiver: str, why: str, since: float | None) -> HealthChange:
    """The change, with its reason cut to `WHY_LENGTH_MAX`."""
    return HealthChange(name=name, receiver=receiver, why=why[:WHY_LENGTH_MAX], since=since)


def _why_failing(state: State, at: float) -> str:
    """The reason of a failure, as of the last attempt."""
    error = state.last.error if isinstance(state.last, f.AttemptFailed) else ""
    return error if state.failing_since is None else no_success_text(at - state.failing_since, error)
