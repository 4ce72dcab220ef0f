"""The failing receivers of a shard: each is reported once, when it counts as offline.

A receiver counts as offline once it has failed for long enough (`Offline.after_s`), which is no fact. Its
next attempt may be an hour away, so the host asks which receivers have come to their time.
"""

import math
from collections.abc import Callable
from heapq import heappop, heappush

from msgspec import Struct

from actors.configuration.policy import Offline, Policy
from actors.machine import facts as f
from actors.machine.alerts.health_changes import HealthChange, change_of_health
from actors.machine.alerts.judging import no_success_text
from actors.machine.state import State

REPORTED_AT_ONCE_MAX = 1000
"""Receivers that are reported as offline at a time: some milliseconds' work."""


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

    def note_configuration(self, receiver: str) -> None:
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
            self._on_health_change(change_of_health("offline", receiver, why, failing.since))

    def _offline_at(self, receiver: str, failing: _Failing) -> float:
        """The time at which it counts as offline; never, if no more time counts before."""
        policy = self._policy(receiver)
        offline_at = failing.since + (policy.offline if policy else Offline()).after_s
        return math.inf if failing.ours_since is not None and failing.ours_since < offline_at else offline_at

    def _schedule(self, receiver: str, at: float) -> None:
        """Check the receiver at `at`, or earlier if a check is due before; it computes the time again."""
        if at < self._due_at.get(receiver, math.inf):
            self._due_at[receiver] = at
            heappush(self._due, (at, receiver))
