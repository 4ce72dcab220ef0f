"""Collects acks for GATHER_ACKS_S, or until there are SEND_AT_ACKS, and sends them from one task.

The server writes the state of a consumer to its disk within 100 ms of each change, which takes 0.3 ms of its
CPU. So acks with every flush of the journal would cost more than everything else that it does for a delivery.
Recovery never relies on an ack; it only tells the server that it may hand out more. Without a connection acks
are dropped: a RESET follows, and hands out again all messages that are not released.
"""

import asyncio
import contextlib

from streams.nats.errors import Disconnected
from streams.nats.wire import Wire
from streams.reading.delivered import ACK

GATHER_ACKS_S = 1.0
SEND_AT_ACKS = 1000


class Acks:
    """The acks of one consumer's messages."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._replies: list[str] = []
        self._due = asyncio.Event()
        self._enough = asyncio.Event()

    def add(self, replies: list[str]) -> None:
        """Ack the messages with these reply subjects soon."""
        self._replies += replies
        self._due.set()
        if len(self._replies) >= SEND_AT_ACKS:
            self._enough.set()

    async def run(self) -> None:
        """Send the acks when they are due, until cancelled."""
        while True:
            await self._due.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHER_ACKS_S):
                    await self._enough.wait()
            self._due.clear()
            self._enough.clear()
            await self.flush()

    async def flush(self) -> None:
        """Send all collected acks now."""
        replies, self._replies = self._replies, []
        if replies and self._wire.connected:
            with contextlib.suppress(Disconnected):
                await self._wire.publish_each(replies, ACK)
