"""Turns for a limited number of slots, of which one host, or one tenant, gets only a part."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from angarium.delivery.connections.connection_turns import Bound, Slots, Waiter


class SharedTurns:
    """Slots that attempts take in turns: `capacity` in all, and `share_max` for each host or tenant."""

    def __init__(self, capacity: int, share_max: int) -> None:
        self._slots: Slots[None] = Slots(Bound(capacity))
        self._share_max = share_max
        self._shares: dict[Hashable, Bound[None]] = {}

    @asynccontextmanager
    async def turn(self, sharer: Hashable, receiver: str) -> AsyncIterator[None]:
        """Wait for the receiver's turn, and hold its slot for the block; the caller bounds the time.

        `sharer`: the host or the tenant whose share it is.
        """
        share = self._shares.get(sharer) or self._shares.setdefault(sharer, Bound(self._share_max))
        waiter: Waiter[None] = Waiter(asyncio.get_running_loop().create_future(), receiver, share)
        self._slots.enter(waiter)
        try:
            await waiter.future
            yield
        finally:
            self._slots.withdraw(waiter)
            if not share.taken:
                del self._shares[sharer]
