"""Acks on their way: gathered, and sent by one task.

Nothing is recovered from an ack, it only tells the server that it may hand out more. Without a connection
they are dropped: a RESET follows, and hands out anew what is not released.
"""

import asyncio
import contextlib

from streams.delivered import ACK
from streams.errors import Disconnected
from streams.wire import Wire


class Acks:
    """The acks of one consumer's messages."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._replies: list[str] = []
        self._due = asyncio.Event()

    def add(self, replies: list[str]) -> None:
        """Ack these messages, by their reply subjects, soon."""
        self._replies += replies
        self._due.set()

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self.flush()

    async def flush(self) -> None:
        """Send what is due now."""
        replies, self._replies = self._replies, []
        if replies and self._wire.connected:
            with contextlib.suppress(Disconnected):
                await self._wire.publish_each(replies, ACK)
