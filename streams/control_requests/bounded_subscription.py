"""Subscriptions to requests from any client: after too many bytes, the subscription pauses for a while.

A node reads all its messages from one connection. Bodies of 900 kB on the subjects of the control requests
came faster than it could read them. nats-server took the node for a slow consumer and cut the connection,
which also carries the heartbeats: seven times in 5 s, at 300 bodies a second. Headers count like bodies, and
are never read: 900 kB of headers blocked a node for 0.1 s, so ten such requests a second silenced it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from streams.nats.wire import Message, Subscription, Wire
from streams.tasks import cancel_and_wait

RECEIVED_BYTES_MAX = 4 << 20
"""Bytes of bodies and headers that are read within `RECEIVED_BYTES_PERIOD_S`. Most requests have none."""
RECEIVED_BYTES_PERIOD_S = 1.0
UNSUBSCRIBED_FOR_S = 2.0

log = logging.getLogger(__name__)


class BoundedSubscription:
    """A subscription to `subjects` that pauses after too many bytes, even if the handler ignores them."""

    def __init__(self, wire: Wire, subjects: Sequence[tuple[str, Callable[[Message], None]]]) -> None:
        self._wire = wire
        self._subjects = subjects
        self._subscriptions: list[Subscription] = []
        self._began_at = 0.0
        self._bytes = 0
        self._pause: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to pass on messages."""
        self._loop = asyncio.get_running_loop()
        for subject, handler in self._subjects:
            bounded = self._bounded(handler)
            self._subscriptions.append(await self._wire.subscribe(subject, bounded, headers=False))

    async def stop(self) -> None:
        """End the subscription."""
        await cancel_and_wait(self._pause)
        await self._unsubscribe()

    async def _unsubscribe(self) -> None:
        while self._subscriptions:
            await self._subscriptions.pop().unsubscribe()

    def _bounded(self, handler: Callable[[Message], None]) -> Callable[[Message], None]:
        def on_message(message: Message) -> None:
            if self._pause is not None and not self._pause.done():
                return
            now = self._loop.time()
            if now - self._began_at >= RECEIVED_BYTES_PERIOD_S:
                self._began_at, self._bytes = now, 0
            self._bytes += message.size
            if self._bytes <= RECEIVED_BYTES_MAX:
                handler(message)
            else:
                log.warning(
                    "requests.unheard", extra={"subject": message.subject, "for_s": UNSUBSCRIBED_FOR_S}
                )
                self._pause = self._loop.create_task(self._rest())

        return on_message

    async def _rest(self) -> None:
        """Unsubscribe for a while; messages that come meanwhile are not delivered to this node."""
        await self._unsubscribe()
        await asyncio.sleep(UNSUBSCRIBED_FOR_S)
        self._bytes = 0
        await self.start()
