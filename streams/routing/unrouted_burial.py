"""Buries events that are evicted before they are routed: one dead letter for each receiver of each event."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from actors.machine.event import Event
from streams.dead_letters.evicted import bury_unrouted
from streams.dead_letters.malformed import MALFORMED_RECEIVER, bury_malformed
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses, ReasonLog
from streams.routing.node_routing import Routing

LETTERS_MAX = 256
"""Letters that are in memory at a time, besides the page of their events."""

log = logging.getLogger(__name__)


class _Letter(Struct, frozen=True):
    receiver: str
    message: StoredMessage
    event: Event
    headers: Mapping[str, str]


class UnroutedBurial:
    """The burial of one router.

    - `routing`: shared by all routers of a node. Events are matched with it as the router does.
    - `may_bury`: asked before each letter. A later owner routes the same event, or buries it; it may be
      erased after that.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        routing: Routing,
        *,
        may_bury: Callable[[], bool],
    ) -> None:
        self._js = js
        self._names = names
        self._routing = routing
        self._may_bury = may_bury

    async def bury(
        self, tenant: str, found: Sequence[tuple[StoredMessage, Event, Mapping[str, str]]]
    ) -> None:
        """Return when all letters of these events are stored, however long there is no room for them.

        Each event comes with its message, and the headers of its copies.
        """
        freshness = self._routing.freshness
        await freshness.cover(freshness.now())
        letters = list[_Letter]()
        for message, event, headers in found:
            for receiver in await self._receivers(tenant, event):
                letters.append(_Letter(receiver, message, event, headers))
                if len(letters) == LETTERS_MAX:
                    await self._store_all(letters)
                    letters.clear()
        await self._store_all(letters)

    async def _receivers(self, tenant: str, event: Event) -> Sequence[str]:
        if event.malformed:
            return [f"{tenant}.{MALFORMED_RECEIVER}"]
        if event.only_for:
            return [f"{tenant}.{event.only_for}"]
        selection = self._routing.selection(tenant, event)
        while not await selection.advance():  # noqa: ASYNC110 - nothing is waited for.
            await asyncio.sleep(0)
        return selection.receivers

    async def _store_all(self, letters: Sequence[_Letter]) -> None:
        """Store these letters, however often that has to be tried."""
        some = list(letters)
        pauses, reason_log = Pauses(self._js), ReasonLog(self._js, log, "dead_letter.waiting")
        while some:
            answers = await asyncio.gather(*map(self._store, some))
            left = [(each, why) for each, why in zip(some, answers, strict=True) if why]
            some = [each for each, _ in left]
            if left:
                first, why = left[0]
                reason_log.log_once(why, receiver=first.receiver, position=first.event.position)
                await pauses.wait()

    async def _store(self, letter: _Letter) -> str:
        async with self._routing.letters:
            if not self._may_bury():
                return "the lease of this node has expired"
            if letter.event.malformed:
                return await bury_malformed(self._js, self._names, letter.receiver, letter.event)
            return await bury_unrouted(
                self._js, self._names, letter.receiver, letter.message, letter.headers,
                self._routing.letter_mark(letter.receiver),
            )  # fmt: skip
