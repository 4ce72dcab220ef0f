"""Grants a bounded number of places to callers that wait for one, the earliest due first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count

LOADS_MAX = 32
"""Snapshots that all shards of a node read at a time. More would only wait in the server, and delay the other
requests, including heartbeats."""


class LoadTurns:
    """A bounded number of places; each is taken for as long as a `turn` lasts."""

    def __init__(self, places: int = LOADS_MAX) -> None:
        self._free = places
        self._order = count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def turn(self, due: float) -> AsyncIterator[None]:
        """Hold a place; if none is free, the next one goes to the caller that was due first."""
        await self._acquire(due)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, due: float) -> None:
        if self._free:
            self._free -= 1
            return
        future = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (due, next(self._order), future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._release()  # The place was granted at the same moment.
            raise

    def _release(self) -> None:
        while self._waiting:
            future = heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
