"""Changes of a receiver's health: it was disabled, is offline, is back, or may not get events yet.

They are derived from the confirmed facts, by comparing the states before and after each. A takeover restores
these states from the journal and the snapshots, so it reports nothing twice. If an owner dies between a
fact's append and its confirmation, that one change is not reported.

That a receiver is offline is no fact: it fails for so long that it counts as offline at some moment, and the
next attempt may be an hour away. `FailingReceivers` reports it in time.
"""

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Literal

from msgspec import Struct

from actors.configuration.policy import Offline, Policy
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
REPORTED_AT_ONCE_MAX = 1000
"""Receivers that are reported as offline at a time: some milliseconds' work."""
WHY_LENGTH_MAX = 200


class HealthChange(Struct, frozen=True, kw_only=True):
    """A change of a receiver's health: why, in words, and since when it has been failing, if it has."""

    name: HealthChangeName
    receiver: str
    why: str
    since: float | None = None


class _Failing(Struct):
    """A receiver that fails: since when, its last error, and whether it was reported as offline.

    - `ours_since`: from then on, no time counts (`State.ours_since`).
    """

    since: float
    ours_since: float | None = None
    error: str = ""
    is_paused: bool = False
    is_reported: bool = False


class FailingReceivers:
    """The failing receivers of a shard, and the time when each of them counts as offline.

    The host asks twice a second whether one is due, which costs nothing if none is.

    - `claimed_at`: the time of our claim; an earlier owner has reported what was due before.
    - `policy`: returns the configuration in force.
    """

    def __init__(
        self,
        claimed_at: float,
        policy: Callable[[str], Policy | None],
        on_health_change: Callable[[HealthChange], None],
    ) -> None:
        self._claimed_at = claimed_at
        self._policy = policy
        self._on_health_change = on_health_change
        self._failing: dict[str, _Failing] = {}
        self._due: list[tuple[float, str]] = []
        self._due_at: dict[str, float] = {}

    def was_reported(self, receiver: str) -> bool:
        """True if we, or an earlier owner, reported the receiver as offline."""
        failing = self._failing.get(receiver)
        return failing is not None and failing.is_reported

    def restore(self, state: State) -> None:
        """Record the state of an actor that was loaded."""
        if state.receiver not in self._failing:
            self.note(state)
            failing = self._failing.get(state.receiver)
            if failing is not None:
                failing.is_reported = self._offline_at(state.receiver, failing) < self._claimed_at

    def note(self, state: State) -> None:
        """Record a confirmed state, after a fact that may begin or end a failure."""
        if state.failing_since is None or state.disabled:
            self._failing.pop(state.receiver, None)
            return
        failing = self._failing.get(state.receiver)
        if failing is None:
            failing = self._failing[state.receiver] = _Failing(state.failing_since)
        failing.since, failing.ours_since = state.failing_since, state.ours_since
        if not failing.is_reported:
            self._schedule(state.receiver, self._offline_at(state.receiver, failing))
        failing.error = state.last.error if isinstance(state.last, f.AttemptFailed) else ""
        failing.is_paused = state.paused

    def configured(self, receiver: str) -> None:
        """Record a changed configuration, which may name another time."""
        failing = self._failing.get(receiver)
        if failing is not None and not failing.is_reported:
            self._schedule(receiver, self._offline_at(receiver, failing))

    def report_due(self, now: float) -> None:
        """Report the receivers that are offline by now, some at a time."""
        count = 0
        while self._due and self._due[0][0] <= now and count < REPORTED_AT_ONCE_MAX:
            at, receiver = heappop(self._due)
            if self._due_at.get(receiver) != at:
                continue  # It was due earlier, after another configuration.
            del self._due_at[receiver]
            failing, policy = self._failing.get(receiver), self._policy(receiver)
            if failing is None or failing.is_reported:
                continue
            if failing.is_paused or (policy is not None and policy.paused):
                continue  # Its time begins again when it is resumed.
            offline_at = self._offline_at(receiver, failing)
            if offline_at > now:
                self._schedule(receiver, offline_at)
                continue
            failing.is_reported = True
            count += 1
            until = now if failing.ours_since is None else failing.ours_since
            why = no_success_text(until - failing.since, failing.error)
            self._on_health_change(_change("offline", receiver, why, failing.since))

    def _offline_at(self, receiver: str, failing: _Failing) -> float:
        """The time at which it counts as offline; never, if no more time counts before."""
        policy = self._policy(receiver)
        offline_at = failing.since + (policy.offline if policy else Offline()).after_s
        return math.inf if failing.ours_since is not None and failing.ours_since < offline_at else offline_at

    def _schedule(self, receiver: str, at: float) -> None:
        """Look at the receiver at that time, or earlier: what is due by then is found out then."""
        if at < self._due_at.get(receiver, math.inf):
            self._due_at[receiver] = at
            heappush(self._due, (at, receiver))


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
            return _change("recovered", receiver, "it accepts events again", since)
        case f.Disabled(reason=reason, at=at) if not before.disabled:
            why = _why_failing(after, at) if reason == "failing" else f.DISABLED_WHY.get(reason, reason)
            return _change("disabled", receiver, why, after.failing_since)
        case f.Resumed() if before.disabled or was_offline:
            return _change("recovered", receiver, "it was resumed", since)
        case f.Retargeted() if before.disabled or was_offline:
            return _change("recovered", receiver, "its URL was changed", since)
        case f.HandshakeFailed(error=error) if unproven_since is None and after.handshake is not None:
            begins = after.handshake.failing_since
            why = f"the handshake failed: {error}"
            return None if begins is None else _change("unverified", receiver, why, begins)
        case f.HandshakeSucceeded() if unproven_since is not None:
            return _change("verified", receiver, "it proved itself", unproven_since)
        case f.Parked() if policy is None and invalid and not before.parked:
            why = "no node can use its configuration; its events wait"
            return _change("misconfigured", receiver, why, after.failing_since)
    return None


def _change(name: HealthChangeName, receiver: str, why: str, since: float | None) -> HealthChange:
    return HealthChange(name=name, receiver=receiver, why=why[:WHY_LENGTH_MAX], since=since)


def _why_failing(state: State, at: float) -> str:
    """The reason of a failure, as of the last attempt."""
    error = state.last.error if isinstance(state.last, f.AttemptFailed) else ""
    return error if state.failing_since is None else no_success_text(at - state.failing_since, error)
