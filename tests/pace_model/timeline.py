"""Virtual time: what is planned happens in the order of its time, and between two times nothing does."""

import heapq
from collections.abc import Callable
from typing import Any


class Timeline:
    """The time `now` of one trial, and everything that is planned in it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def plan(self, at: float, call: Callable[..., None], *arguments: Any) -> None:
        """Make this call at the time `at`; calls of one time are made in the order of their planning."""
        self._count += 1
        heapq.heappush(self._planned, (at, self._count, call, arguments))

    def run_until(self, end: float) -> None:
        """Let time pass until `end`."""
        planned = self._planned
        while planned and planned[0][0] <= end:
            at, _, call, arguments = heapq.heappop(planned)
            self.now = max(self.now, at)
            call(*arguments)
        self.now = end
