"""Limits how often heavy work begins in one turn of the event loop, so that other work runs in between.

If thousands of receivers get their first event at once, each has to be loaded and connected, which takes ten
times as long as to write to a kept connection. Nothing of it is long by itself; but a delivery to another
receiver takes a dozen turns, and in each of them would wait for all that begins there.
"""

import asyncio
from collections import deque

BEGUN_IN_TURN_MAX = 4
"""Loads, or connections, that begin in one turn; each takes up to half a millisecond in all its steps."""


class StartsPerTurn:
    """Permissions to begin, in the order in which they were asked for. Belongs to one event loop."""

    def __init__(self) -> None:
        self._left = BEGUN_IN_TURN_MAX
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def begin(self) -> None:
        """Return at once if there is room in this turn, otherwise in the caller's own turn."""
        loop = asyncio.get_running_loop()
        if not self._left:
            waiter = loop.create_future()
            self._waiting.append(waiter)
            await waiter
            return
        if self._left == BEGUN_IN_TURN_MAX:
            loop.call_soon(self._next_turn)
        self._left -= 1

    def _next_turn(self) -> None:
        """Wake those who may begin in the next turn; one that was cancelled takes no room."""
        self._left = BEGUN_IN_TURN_MAX
        while self._waiting and self._left:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._left -= 1
        if self._left < BEGUN_IN_TURN_MAX:
            asyncio.get_running_loop().call_soon(self._next_turn)
