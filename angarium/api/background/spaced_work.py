"""Paces work that would hold up other requests: one at a time in a process, with a pause after each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class SpacedWork:
    """Turns in the order of their requests; several requests of one client have one place in the queue."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._any_client = asyncio.Lock()
        self._locks_by_client: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn, which lasts until the block has ended and the pause after it is over."""
        own = self._locks_by_client.setdefault(client, asyncio.Lock())
        async with own, self._any_client:
            yield
            await asyncio.sleep(self._pause_s)
