"""Slots in a limited number, of which one host or one tenant gets only a share."""

import asyncio
from collections.abc import Hashable
from typing import Self

from angarium.delivery.connections.connection_turns import ConnectionSlots, SlotLimit, Waiter
from angarium.delivery.connections.expiry_per_turn import ExpiryPerTurn


class FairSlots:
    """Slots that attempts take in turns: `capacity` in all, and `share_max` for each host or tenant."""

    def __init__(self, capacity: int, share_max: int) -> None:
        self._slots: ConnectionSlots[None] = ConnectionSlots(SlotLimit(capacity))
        self._share_max = share_max
        self._shares: dict[Hashable, SlotLimit[None]] = {}
        self.expiry = ExpiryPerTurn()

    @property
    def is_unused(self) -> bool:
        """True if no slot is taken; while an attempt waits, at least one is."""
        return not self._shares

    def turn(self, sharer: Hashable, receiver: str) -> "SlotTurn":
        """The turn of an attempt. `sharer`: the host or the tenant whose share it is."""
        return SlotTurn(self, sharer, receiver)

    def enter(self, sharer: Hashable, receiver: str) -> Waiter[None]:
        """Take a slot, or queue for one."""
        share = self._shares.get(sharer) or self._shares.setdefault(sharer, SlotLimit(self._share_max))
        waiter: Waiter[None] = Waiter(asyncio.get_running_loop().create_future(), receiver, share)
        self._slots.enter(waiter)
        return waiter

    def leave(self, sharer: Hashable, waiter: Waiter[None]) -> None:
        """Give up the slot, or the place in the queue."""
        self._slots.withdraw(waiter)
        if not waiter.host.taken:
            del self._shares[sharer]


class SlotTurn:
    """The turn of one attempt, which may end and begin again; it ends with the `with` block."""

    __slots__ = ("_receiver", "_sharer", "_slots", "_waiter")

    def __init__(self, slots: FairSlots, sharer: Hashable, receiver: str) -> None:
        self._slots = slots
        self._sharer = sharer
        self._receiver = receiver
        self._waiter: Waiter[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    async def begin(self, deadline: float) -> bool:
        """Wait for a slot, unless one is held; False if the deadline, in the loop's time, came first."""
        if self._waiter is not None:
            return True
        waiter = self._waiter = self._slots.enter(self._sharer, self._receiver)
        loop = asyncio.get_running_loop()
        timer = loop.call_at(deadline, self._expire, waiter)
        try:
            await waiter.future
        finally:
            timer.cancel()
        if loop.time() >= deadline:
            self.end()
        return self._waiter is not None

    def end(self) -> None:
        """Give up the slot, or the place in the queue."""
        if self._waiter is not None:
            self._leave(self._waiter)

    def _expire(self, waiter: Waiter[None]) -> None:
        """Leave the queue at once, so that no slot is given to it; the attempt continues in its turn."""
        if not waiter.future.done():
            self._leave(waiter)
            self._slots.expiry.call_soon(waiter.wake)

    def _leave(self, waiter: Waiter[None]) -> None:
        self._slots.leave(self._sharer, waiter)
        self._waiter = None
