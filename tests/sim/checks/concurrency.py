"""Attempts of one receiver at the same time: as many as configured, and one while it is down.

An attempt counts from its first byte to whatever comes back. A receiver is down for a node from the fifth
failure in a row that came back to it, until a 2xx does, or until the journal says that it was let go.
"""

from actors.machine.outcome import Answered, Failed, Outcome
from actors.policy import Policy

IN_A_ROW_MAX = 5
NEVER = float("inf")


class Concurrency:
    """The attempts of one receiver, as one process sees it."""

    def __init__(self) -> None:
        self._under_way: dict[int, float] = {}
        self._in_a_row = 0
        self._down_since = NEVER
        self._let_go_at = 0.0

    def started(self, position: int, policy: Policy, now: float, decided_at: float) -> str:
        """Says in a sentence what is wrong with a start that was decided then; nothing if all is well."""
        others = [each for each in self._under_way if each != position]
        if position in self._under_way:
            return f"an attempt of the event at {position} is under way already"
        wide = policy.concurrency if policy.order == "relaxed" else 1
        if len(others) >= wide:
            return f"{position} starts beside {others}, but only {wide} may be under way"
        if others and decided_at > self._down_since:
            return f"{position} starts beside {others} after {self._in_a_row} failures in a row"
        self._under_way[position] = now
        return ""

    def ended(self, position: int | None, outcome: Outcome, now: float) -> None:
        """An attempt came back; without a position it was a ping, whose failure says nothing."""
        started_at = self._under_way.pop(position, 0.0) if position else 0.0
        if isinstance(outcome, Answered) and outcome.status < 300:
            self._in_a_row, self._down_since = 0, NEVER
        elif position and _is_failure(outcome) and started_at >= self._let_go_at:
            self._in_a_row += 1
            if self._in_a_row == IN_A_ROW_MAX:
                self._down_since = now

    def let_go(self, now: float) -> None:
        """Take the receiver as no longer held back."""
        self._in_a_row, self._down_since, self._let_go_at = 0, NEVER, now


def _is_failure(outcome: Outcome) -> bool:
    """True if the receiver as a whole seems to be down: an event's own fault and throttling do not count."""
    if isinstance(outcome, Answered):
        return outcome.status in (301, 404, 500, 503) and "retry-after" not in dict(outcome.headers)
    return isinstance(outcome, Failed)
