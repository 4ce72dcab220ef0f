"""Turns for a limited number of slots, of which one host gets only a part."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from angarium.delivery.connections.connection_turns import Bound, Slots, Waiter
from angarium.delivery.http_exchange.target import Target


class HostTurns:
    """Slots that attempts take in turns: `capacity` in all, and `per_host_max` for each host."""

    def __init__(self, capacity: int, per_host_max: int) -> None:
        self._slots: Slots[None] = Slots(Bound(capacity))
        self._per_host_max = per_host_max
        self._hosts: dict[tuple[str, int], Bound[None]] = {}

    @asynccontextmanager
    async def turn(self, target: Target, receiver: str) -> AsyncIterator[None]:
        """Wait for the receiver's turn, and hold its slot for the block; the caller bounds the time."""
        where = (target.host, target.port)
        host = self._hosts.get(where) or self._hosts.setdefault(where, Bound(self._per_host_max))
        waiter: Waiter[None] = Waiter(asyncio.get_running_loop().create_future(), receiver, host)
        self._slots.enter(waiter)
        try:
            await waiter.future
            yield
        finally:
            self._slots.withdraw(waiter)
            if not host.taken:
                del self._hosts[where]
