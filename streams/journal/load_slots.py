"""Grants a bounded number of slots to callers that wait for one, the earliest due first."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count

LOADS_MAX = 32
"""Snapshots that all shards of a node read at a time. More would only wait in the server, and delay the other
requests, including heartbeats."""


async def no_wait() -> None:
    """Wait for nothing."""


class LoadSlots:
    """A bounded number of slots; `slot` takes one for as long as its block lasts.

    `begin` is awaited before each block: it may spread them over several turns of the event loop.
    """

    def __init__(self, slots: int = LOADS_MAX, begin: Callable[[], Awaitable[None]] = no_wait) -> None:
        self._begin = begin
        self._free = slots
        self._order = count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def slot(self, due: float) -> AsyncIterator[None]:
        """Hold a slot; if none is free, the next one goes to the caller that was due first."""
        await self._acquire(due)
        try:
            await self._begin()
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
                self._release()  # The slot was granted at the same moment.
            raise

    def _release(self) -> None:
        while self._waiting:
            future = heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
