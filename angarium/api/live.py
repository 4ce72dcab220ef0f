"""The live state of one process of the API: its way to NATS, and what it follows there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from litestar.di import NamedDependency

from actors.errors import Unavailable
from actors.subscriptions import Subscriptions
from angarium.api.bodies import Room
from angarium.api.rates import Rates
from angarium.connecting import Access, open_jetstream
from angarium.settings import Settings
from streams.nats.codes import STREAM_NOT_FOUND
from streams.nats.errors import ApiError
from streams.receivers import Receivers, subscriptions_of
from streams.tokens import TokenStore

STALE_AFTER_S = 10.0
"""A process that has not heard of revocations for so long refuses all tokens."""
LEADER_TIMEOUT_S = 1.0
"""Time to ask the leader of the configurations, for an answer that is better with it."""

ORDERS_MAX = 64
"""Orders to the owners of receivers that are awaited at a time; a ping may take a minute."""


class Live:
    """Made by `living`."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.tokens = TokenStore(access.js, access.names)
        self.rates = Rates()
        self.room = Room()
        self.orders = Room(ORDERS_MAX)
        self._receivers = Receivers(access.js, access.names)
        self._subscriptions: Subscriptions = subscriptions_of(self._receivers)

    async def start(self) -> None:
        """Return when all tokens and configurations are known. Raises `ApiError`."""
        names = self.access.names
        for stream in (names.tokens, names.receivers):
            if await self.access.js.stream_info(stream) is None:
                raise ApiError(STREAM_NOT_FOUND, f"there is no {stream}: run angarium setup")
        await self.tokens.start()
        await self._receivers.start()

    async def stop(self) -> None:
        await self._receivers.stop()
        await self.tokens.stop()

    @property
    def ready(self) -> bool:
        """Return whether NATS is there, and every revocation is known that is a few seconds old."""
        now = asyncio.get_running_loop().time()
        return self.access.js.wire.connected and now - self.tokens.read_at < STALE_AFTER_S

    async def has(self, receiver: str) -> bool:
        """Return whether there is such a receiver; the leader is asked before it is denied.

        Raises `Unavailable`.
        """
        if self._receivers.known(receiver):
            return True
        async with asyncio.timeout(LEADER_TIMEOUT_S):
            await self._receivers.confirm(receiver)
        return self._receivers.known(receiver)

    async def matched(self, tenant: str, event_type: str) -> int | None:
        """Count the receivers that subscribe; None if none is known, and the leader cannot be asked."""
        found = len(self._subscriptions.match(tenant, event_type))
        if not found:
            try:
                async with asyncio.timeout(LEADER_TIMEOUT_S):
                    await self._receivers.catch_up()
            except (TimeoutError, Unavailable):
                return None
            found = len(self._subscriptions.match(tenant, event_type))
        return found


@asynccontextmanager
async def living(settings: Settings, second: bool = False) -> AsyncIterator[Live]:
    """The state of a process, over a connection of its own. Raises `ConnectError` and `ApiError`."""
    async with open_jetstream(settings, second) as js:
        live = Live(Access(js, settings))
        try:
            await live.start()
            yield live
        finally:
            await live.stop()


TheLive = NamedDependency[Live]
TheAccess = NamedDependency[Access]
"""What a route takes as `live` and `access`."""
