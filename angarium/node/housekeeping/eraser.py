"""Erases events on request, on the node that owns shard 0.

The order matters. What producers published goes first, once it is routed, so that no new copy comes. Then
each owner ends the deliveries of its receivers, on record, and drops their messages
(`actors.runtime.requests.erase`).
Dead letters follow, since an owner may still have stored one. Last go those flushes of the journal that hold
answers of receivers, which may repeat the body; no recovery ever reads what is before a checkpoint, so
none misses them (`docs/decisions/erased-everywhere.md`). All is looked for again until nothing is found.

Nothing here is fenced, and nothing need be: to erase twice is to erase once.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from actors.errors import AngariumError, Unavailable
from angarium.node.shard import NodeContext
from streams.erasing import search
from streams.erasing.erasures import Erasure, Erasures, finished
from streams.installation.partitions import shard_of
from streams.journal.checkpoint import read_checkpoint
from streams.nats.retry import Complaint, stream_info

LOOK_EVERY_S = 1.0
ROUTED_WITHIN_S = 10.0
"""Time for an event to be routed before it is erased all the same, since possibly no node is running
that routes it."""
OWNER_TIMEOUT_S = 10.0
"""Time for an owner to answer. It awaits the attempts under way, and may be asked again meanwhile."""
TOLD_AT_ONCE = 16
log = logging.getLogger(__name__)


class Waits(AngariumError):
    """Something that has to happen first; it is tried again."""


class _Work:
    """One request under way. `all_told`: each owner has dropped what its memory may hold."""

    def __init__(self, erasure: Erasure) -> None:
        self.erasure = replace(erasure, waits_for="")
        self.all_told = False

    def count(self, **more: int) -> None:
        """Add to what was erased."""
        totals = {name: getattr(self.erasure, name) + count for name, count in more.items()}
        self.erasure = replace(self.erasure, **totals)


class Eraser:
    """Erases for the installation as long as `owns_shard_0` says that it is this node's turn."""

    def __init__(self, context: NodeContext, shards: int, owns_shard_0: Callable[[], bool]) -> None:
        self._js = context.js
        self._names = context.names
        self._wall = context.time.wall
        self._receivers = context.receivers
        self._shards = shards
        self._owns_shard_0 = owns_shard_0
        self._erasures = Erasures(context.js, context.names)

    async def run(self) -> None:
        """Run until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._owns_shard_0():
                try:
                    await self.look()
                except AngariumError as error:
                    Complaint(self._js, log, "erasure.delayed").tell(str(error))
                except Exception:  # The next request may go well.
                    log.exception("erasure.broken")

    async def look(self) -> None:
        """Try every request that is not done."""
        async for erasure, revision in self._erasures.pending():
            await self._try(erasure, revision)

    async def _try(self, erasure: Erasure, revision: int) -> None:
        work = _Work(erasure)
        try:
            while await self._round(work):
                pass
            journal = await stream_info(self._js, self._names.journal)
            done = finished(work.erasure, self._wall(), journal.last)
        except (AngariumError, TimeoutError) as error:
            done = replace(work.erasure, waits_for=str(error) or "an answer of NATS")
        if done != erasure:
            await self._erasures.note(done, revision)
        if done.done_at is not None:
            log.info("event.erased", extra={"tenant": done.tenant, "event_id": done.event, "by": done.by})

    async def _round(self, work: _Work) -> bool:
        """Erase what is found; False if there was nothing. Raises Waits, and what NATS raises."""
        found = await self._erase_events(work)
        found += await self._end_deliveries(work)
        found += await self._erase_dead_letters(work)
        return bool(found + await self._erase_answers(work))

    async def _erase_events(self, work: _Work) -> int:
        tenant, event = work.erasure.tenant, work.erasure.event
        found = await search.events(self._js, self._names, tenant, event)
        for message in found:
            partition = int(message.subject.split(".")[2])
            router = self._names.route_consumer(partition)
            info = await self._js.consumer_info(self._names.events, router)
            routed = info is None or info.ack_floor >= message.sequence
            if not routed and self._wall() < work.erasure.at + ROUTED_WITHIN_S:
                raise Waits("the event is being routed")
            await self._js.delete(self._names.events, message.sequence)
            work.count(events=1)
        return len(found)

    async def _end_deliveries(self, work: _Work) -> int:
        found = await search.deliveries(self._js, self._names, work.erasure.tenant, work.erasure.event)
        if not work.all_told:
            # Their memory may hold an answer that repeats the body, and their shards have to go on.
            others = set(await self._receivers.names(work.erasure.tenant)) - found.keys()
            turn = asyncio.Semaphore(TOLD_AT_ONCE)
            await asyncio.gather(*(self._tell(work, each, [], turn) for each in sorted(others)))
            work.all_told = True
        for receiver, positions in found.items():
            await self._tell(work, receiver, positions, asyncio.Semaphore(1))
        return len(found)

    async def _tell(self, work: _Work, receiver: str, positions: list[int], turn: asyncio.Semaphore) -> None:
        """Let the owner end these deliveries; deletes them itself if the owner knows no such receiver."""
        tenant, _, name = receiver.partition(".")
        subject = self._names.control("erase", tenant, name)
        body = msgspec.json.encode({"event": work.erasure.event, "positions": positions})
        async with turn:
            try:
                message = await self._js.request(subject, body, OWNER_TIMEOUT_S)
            except Unavailable as error:
                shard = shard_of(tenant, name, self._shards)
                raise Waits(f"no node answers for shard {shard} ({receiver})") from error
        answer = msgspec.json.decode(message.data)
        if answer["ok"]:
            work.count(deliveries=answer["messages"], waiting=answer["waiting"])
            return
        if answer["error"]["code"] != "unknown_receiver":
            raise Waits(answer["error"]["message"])
        for position in positions:
            await self._js.delete(self._names.deliveries, position)
            work.count(deliveries=1)

    async def _erase_dead_letters(self, work: _Work) -> int:
        found = await search.dead_letters(self._js, self._names, work.erasure.tenant, work.erasure.event)
        for position in found:
            await self._js.delete(self._names.dead_letters, position)
            work.count(dead_letters=1)
        return len(found)

    async def _erase_answers(self, work: _Work) -> int:
        """Erase each flush that no recovery reads any more, and that is not its shard's last message."""
        js, names = self._js, self._names
        found = await search.answers(js, names, work.erasure.tenant, work.erasure.event)
        for position, shard in found.items():
            checkpoint = await read_checkpoint(js, names, shard)
            last = await js.last_message(names.journal, names.journal_of(shard))
            if checkpoint is None or checkpoint.sequence < position or last is None:
                raise Waits(f"no checkpoint of shard {shard} is after an answer in the journal")
            if last.sequence <= position:
                work.all_told = False
                raise Waits(f"shard {shard} has recorded nothing after an answer in the journal")
            await js.delete(names.journal, position)
            work.count(flushes=1)
        return len(found)
