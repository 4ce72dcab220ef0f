"""Freshness: events are matched by configurations at most half a second older than the event.

Following the bucket is not enough. The follower may have stopped receiving, or the process may have slept; an
event that was published after a subscription would then be matched without it, and the receiver would miss
it. So the leader is asked for the bucket's last position, and nothing is matched before that is applied.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from actors.errors import Unavailable
from streams.clock import Timekeeper
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses, ReasonLog
from streams.tasks import cancel_and_wait

CONFIGURATIONS_AGE_MAX_S = 0.5
"""Allowed age, so that not every event costs a request to the leader; half the time that a change may
take."""

log = logging.getLogger(__name__)


class Freshness:
    """The freshness of the configurations that a follower has applied; all callers share one request.

    `catch_up` returns when everything has been applied that the leader had at the call, or raises
    `Unavailable`. The time at which an event came counts, not the time at which it is matched: however long
    the process sleeps or works in between, a subscription made a second before the event is in time.
    """

    def __init__(self, js: JetStream, catch_up: Callable[[], Awaitable[None]], time: Timekeeper) -> None:
        self._js = js
        self._catch_up = catch_up
        self._time = time
        self._as_of = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def now(self) -> float:
        """The present time, to be noted for an event when it comes, and passed to `covers`."""
        return self._time.boottime()

    def covers(self, came_at: float) -> bool:
        """True if an event that came at that time may be matched with the applied configurations."""
        return came_at <= self._as_of + CONFIGURATIONS_AGE_MAX_S

    async def cover(self, came_at: float) -> None:
        """Wait until `covers` is true, however long NATS is away."""
        while not self.covers(came_at):
            if self._asking is None or self._asking.done():
                self._asking = asyncio.ensure_future(self._ask())
            # A caller that gives up must not cancel the request for the others.
            await asyncio.shield(self._asking)

    async def stop(self) -> None:
        """Cancel the request under way."""
        await cancel_and_wait(self._asking)

    async def _ask(self) -> None:
        pauses, reason_log = Pauses(self._js), ReasonLog(self._js, log, "routing.waiting")
        while True:
            asked_at = self._time.boottime()
            try:
                await self._catch_up()
            except Unavailable as error:
                reason_log.log_once(f"configurations cannot be read: {error}")
                await pauses.wait()
            else:
                self._as_of = asked_at
                return
