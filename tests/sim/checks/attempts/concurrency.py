"""Attempts of one receiver at the same time: as many as configured, one while it is down, none if it says so.

An attempt counts from its first byte to whatever comes back. A receiver is down for a node from the fifth
failure in a row that came back to it, until a 2xx does, or until the journal says that it was let go. Until
then it also gets nothing after it asked for that, and no event again that it aborted.
"""

from collections.abc import Sequence

from actors.configuration.policy import Policy
from actors.machine.outcome import ABORT, DISABLE, Answered, Failed, Outcome

IN_A_ROW_MAX = 5
NEVER = float("inf")


class Concurrency:
    """The attempts of one receiver, as one process sees it, each by the position of its first event."""

    def __init__(self) -> None:
        self._under_way: dict[int, float] = {}
        self._events: set[int] = set()
        self._in_a_row = 0
        self._down_since = NEVER
        self._let_go_at = 0.0
        self._wants_none_since = NEVER
        self._aborted = set[int]()

    def started(self, positions: Sequence[int], policy: Policy, now: float, decided_at: float) -> str:
        """Says in a sentence what is wrong with a start that was decided then; nothing if all is well."""
        position, others = positions[0], list(self._under_way)
        if decided_at > self._wants_none_since:
            return f"{position} starts, and the receiver has asked for nothing more"
        if aborted := self._aborted.intersection(positions):
            return f"{aborted} start again, and the receiver has aborted them"
        if twice := self._events.intersection(positions):
            return f"an attempt of the events at {twice} is under way already"
        wide = policy.concurrency if policy.order == "relaxed" else 1
        if len(others) >= wide:
            return f"{position} starts beside {others}, but only {wide} may be under way"
        if others and decided_at > self._down_since:
            return f"{position} starts beside {others} after {self._in_a_row} failures in a row"
        self._under_way[position] = now
        self._events.update(positions)
        return ""

    def ended(self, positions: Sequence[int], outcome: Outcome, now: float) -> None:
        """An attempt came back; without a position it was a ping, whose failure says nothing."""
        started_at = self._under_way.pop(positions[0], 0.0) if positions else 0.0
        self._events.difference_update(positions)
        if positions and isinstance(outcome, Answered):
            self._steered(positions, outcome, now)
        if isinstance(outcome, Answered) and outcome.status < 300:
            self._in_a_row, self._down_since = 0, NEVER
        elif positions and _is_failure(outcome) and started_at >= self._let_go_at:
            self._in_a_row += 1
            if self._in_a_row == IN_A_ROW_MAX:
                self._down_since = now

    def _steered(self, positions: Sequence[int], answer: Answered, now: float) -> None:
        headers = dict(answer.headers)
        if answer.status == 410 or headers.get(DISABLE) == "true":
            self._wants_none_since = min(self._wants_none_since, now)
        elif answer.status == 429 or "retry-after" in headers:
            return
        if answer.status >= 300 and headers.get(ABORT) == "true" and len(positions) == 1:
            self._aborted.update(positions)

    def let_go(self, now: float) -> None:
        """Take the receiver as no longer held back."""
        self._in_a_row, self._down_since, self._let_go_at = 0, NEVER, now
        self._wants_none_since = NEVER
        self._aborted.clear()


def _is_failure(outcome: Outcome) -> bool:
    """True if the receiver as a whole seems to be down: an event's own fault and throttling do not count."""
    if isinstance(outcome, Answered):
        headers = dict(outcome.headers)
        if {ABORT, DISABLE} & headers.keys():
            return False
        return outcome.status in (301, 404, 500, 503) and "retry-after" not in headers
    return isinstance(outcome, Failed)
