"""Freshness: events are matched by configurations at most half a second older than the event.

Following the bucket is not enough. The follower may hear nothing any more, and a process may have slept; an
event that was published after a subscription would then be matched without it, and be lost to the receiver.
So the leader is asked for the bucket's last sequence, and nothing is matched before that much is applied.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from actors.errors import Unavailable
from streams.clock import Timekeeper
from streams.nats.jetstream import JetStream
from streams.nats.retry import Complaint, Pauses

CONFIGURATIONS_AGE_MAX_S = 0.5
"""Spares the leader a question for each event; it is half of what a change may take."""

log = logging.getLogger(__name__)


class Freshness:
    """The freshness of what a follower has applied. It asks only on demand, once for all callers.

    `catch_up` returns when all has been applied that the leader had when it was called, or raises
    `Unavailable`. What counts is when an event came and not when it is matched: no time that passes in
    between, asleep or at work, makes a subscription late that was made a second before the event.
    """

    def __init__(self, js: JetStream, catch_up: Callable[[], Awaitable[None]], time: Timekeeper) -> None:
        self._js = js
        self._catch_up = catch_up
        self._time = time
        self._as_of = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def now(self) -> float:
        """The time at which an event came, for `covers`."""
        return self._time.boottime()

    def covers(self, came_at: float) -> bool:
        """True if an event that came then may be matched with what is applied now."""
        return came_at <= self._as_of + CONFIGURATIONS_AGE_MAX_S

    async def cover(self, came_at: float) -> None:
        """Wait until `covers` is true, however long NATS is away."""
        while not self.covers(came_at):
            if self._asking is None or self._asking.done():
                self._asking = asyncio.ensure_future(self._ask())
            # A caller that gives up waiting must not end it for the others.
            await asyncio.shield(self._asking)

    async def stop(self) -> None:
        """Ask for nothing more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    async def _ask(self) -> None:
        pauses, complaint = Pauses(self._js), Complaint(self._js, log, "routing.waiting")
        while True:
            asked_at = self._time.boottime()
            try:
                await self._catch_up()
            except Unavailable as error:
                complaint.tell(f"configurations cannot be read: {error}")
                await pauses.wait()
            else:
                self._as_of = asked_at
                return
