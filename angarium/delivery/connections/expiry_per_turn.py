"""Limits how much expires in one turn of the event loop, so that other work runs in between.

Thousands of attempts that began together expire together, and each of them has consequences: an outcome, a
fact, the next step of its receiver.
"""

import asyncio
from collections import deque
from collections.abc import Callable

EXPIRED_IN_TURN_MAX = 2
"""Things that expire in one turn; each takes 0.3 ms, including all consequences."""


class ExpiryPerTurn:
    """Calls that end something, in the order in which they were asked for. Belongs to one event loop."""

    def __init__(self) -> None:
        self._due: deque[Callable[[], object]] = deque()

    def call_soon(self, expire: Callable[[], object]) -> None:
        """Call `expire` in its turn."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._expire)
        self._due.append(expire)

    def _expire(self) -> None:
        for _ in range(min(EXPIRED_IN_TURN_MAX, len(self._due))):
            self._due.popleft()()
        if self._due:
            asyncio.get_running_loop().call_soon(self._expire)
