"""Turns of handovers: few shards of a node change hands at once, and the last one begins in time.

A shard delivers until its turn comes, and its turn ends when another node runs it. A turn that takes too long
ends before: an attempt that hangs holds up no other shard, and a node that stops has to end.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HANDOVERS_AT_ONCE = 2
TURN_MAX_S = 1.0


def turn_s(left_s: float, waiting: int) -> float:
    """The longest time of a turn, so that all that wait have begun when `left_s` is over."""
    return min(TURN_MAX_S, max(left_s, 0.0) / math.ceil((waiting + 1) / HANDOVERS_AT_ONCE))


class HandoverTurns:
    """Gives turns in the order of the requests; all have begun `within_s` after the first one that waited."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._slots = asyncio.Semaphore(HANDOVERS_AT_ONCE)
        self._waiting = 0
        self._there = 0
        self._began_at = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[float]:
        """Wait for a turn, and yield how long it may last."""
        loop = asyncio.get_running_loop()
        if not self._there:
            self._began_at = loop.time()
        self._there += 1
        self._waiting += 1
        try:
            try:
                await self._slots.acquire()
            finally:
                self._waiting -= 1
            try:
                yield turn_s(self._began_at + self._within_s - loop.time(), self._waiting)
            finally:
                self._slots.release()
        finally:
            self._there -= 1
