"""The steps of one erasure: each deletes what it finds of an event in one stream, or says what it waits for.

The order matters. First goes the event where it waits for its time: from then on, a due event of it is
dropped. Then goes the published message, once it is routed: until then, a router may have it in memory. Each
owner then ends the deliveries of its receivers, records that, and drops their messages
(`actors.runtime.operator_actions.end_deliveries`). Dead letters follow: an owner may still have stored one.
Last go those flushes of the journal that hold answers of receivers, which may repeat the body; no recovery
ever reads before a checkpoint, so none misses them (`docs/decisions/erasing-events.md`).

Nothing here is fenced, and nothing has to be: erasing twice has the effect of erasing once, and an ended
delivery stays ended.
"""

import asyncio
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from actors.errors import InvalidName, Unavailable
from actors.ids import split_receiver
from streams.buckets.stored_configurations import StoredConfigurations
from streams.erasing import search
from streams.erasing.erasures import Erasure
from streams.installation.partitions import shard_of
from streams.installation.topology import Names
from streams.journal.checkpoint import read_checkpoint
from streams.journal.claim import read_shard_record
from streams.journal_feed.redacted_flushes import store_redacted
from streams.lost_tails.deletion import delete_known
from streams.lost_tails.marks import Mark
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.timed.entries import erase, events_age_s
from streams.timed.listing import entries_of_event

OWNER_TIMEOUT_S = 10.0
"""Time for the owners of a tenant's receivers to answer, all together. They await the attempts under way, and
may be asked again meanwhile."""
OWNERS_ASKED_AT_ONCE = 16
ANSWERED_FOR_S = 600.0
"""Time in which an owner that has answered is not asked again, if others have not: there may be 100,000."""


class AnsweredOwners:
    """The receivers whose owners have nothing of an event any more, for as long as that is believed."""

    def __init__(self) -> None:
        self._since = float("-inf")
        self._receivers: set[str] = set()

    def without(self, receivers: Iterable[str], now: float) -> set[str]:
        """Leave out the receivers whose owners have answered."""
        if now - self._since > ANSWERED_FOR_S:
            self._since = now
            self._receivers.clear()
        return {*receivers} - self._receivers

    def add(self, receiver: str) -> None:
        """Count the owner of the receiver as one that has answered."""
        self._receivers.add(receiver)

    def forget(self) -> None:
        """Ask all of them the next time."""
        self._since = float("-inf")


class ErasureProgress:
    """One request under way.

    - `found`: number of the messages that held the event as it was published.
    - `awaited_s`: time for which owners of receivers were awaited.
    """

    def __init__(self, erasure: Erasure, answered: AnsweredOwners) -> None:
        self.erasure = replace(erasure, waits_for="")
        self.answered = answered
        self.found = 0
        self.awaited_s = 0.0

    def count(self, **more: int) -> None:
        """Add to the totals."""
        totals = {name: getattr(self.erasure, name) + count for name, count in more.items()}
        self.erasure = replace(self.erasure, **totals)


class ErasureSteps:
    """The steps, for any request: each returns what it waits for, or an empty text. Raises errors of NATS."""

    def __init__(
        self, js: JetStream, names: Names, configurations: StoredConfigurations, shards: int
    ) -> None:
        self._js = js
        self._names = names
        self._configurations = configurations
        self._shards = shards

    async def erase_copies(self, progress: ErasureProgress) -> str:
        """Erase the messages that hold the event as it was published."""
        return (
            await self._erase_entries(progress)
            or await self._erase_events(progress)
            or await self._end_deliveries(progress)
            or await self._erase_dead_letters(progress)
        )

    async def erase_late(self, progress: ErasureProgress, source_max: int) -> str:
        """Erase what routers have made late of messages up to that position."""
        tenant, event = progress.erasure.tenant, progress.erasure.event
        found = await search.late_copies(self._js, self._names, tenant, event, source_max)
        for receiver, copies in found.items():
            progress.found += len(copies)
            if waits_for := await self._ask_owner(progress, receiver, copies, asyncio.Semaphore(1)):
                return waits_for
        return (
            await self._erase_dead_letters(progress, source_max)
            or await self.erase_answers(progress, source_max)
        )  # fmt: skip

    async def _erase_entries(self, progress: ErasureProgress) -> str:
        """Erase the event where it waits for its time; a due event of it is dropped from then on."""
        js, names, erasure = self._js, self._names, progress.erasure
        age_s = await events_age_s(js, names)
        async for entry in entries_of_event(js, names, erasure.tenant, erasure.event):
            progress.found += 1
            if await erase(js, names, entry, age_s):
                progress.count(events=1, waiting=1)
        return ""

    async def _erase_events(self, progress: ErasureProgress) -> str:
        tenant, event = progress.erasure.tenant, progress.erasure.event
        for message in await search.events(self._js, self._names, tenant, event):
            progress.found += 1
            if not await self._is_routed(message):
                return "the event is being routed"
            if await delete_known(self._js, self._names.events, search.mark_of(message)):
                progress.count(events=1)
        return ""

    async def _is_routed(self, message: StoredMessage) -> bool:
        """True if no router has the event in memory, nor will have: all its copies are confirmed."""
        address = self._names.partition_and_tenant(message.subject)
        if address is None:
            return True  # A stray, which no router reads (`streams.storage.strays`).
        partition, tenant = address
        past = await read_shard_record(self._js, self._names, partition)
        return past.routing is not None and past.routing.covers(tenant, message.position)

    async def _end_deliveries(self, progress: ErasureProgress) -> str:
        found = await search.deliveries(
            self._js, self._names, progress.erasure.tenant, progress.erasure.event
        )
        # The memory of the others may hold an answer that repeats the body, and their shards must continue.
        others = set(await self._configurations.names(progress.erasure.tenant)) - found.keys()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(OWNER_TIMEOUT_S):
                waits_for = await self._ask_owners(progress, found, progress.answered.without(others, began))
        except TimeoutError:
            return "owners of its tenant's receivers have not answered yet"
        finally:
            progress.awaited_s += loop.time() - began
        progress.answered.forget()
        return waits_for

    async def _ask_owners(
        self, progress: ErasureProgress, found: dict[str, list[Mark]], others: set[str]
    ) -> str:
        at_once = asyncio.Semaphore(OWNERS_ASKED_AT_ONCE)

        async def ask(receiver: str) -> str:
            waits_for = await self._ask_owner(progress, receiver, [], at_once)
            if not waits_for:
                progress.answered.add(receiver)
            return waits_for

        if waits_for := next(filter(None, await asyncio.gather(*map(ask, sorted(others)))), ""):
            return waits_for
        progress.found += len(found)
        for receiver, copies in found.items():
            if waits_for := await self._ask_owner(progress, receiver, copies, asyncio.Semaphore(1)):
                return waits_for
        return ""

    async def _ask_owner(
        self, progress: ErasureProgress, receiver: str, found: list[Mark], at_once: asyncio.Semaphore
    ) -> str:
        """Ask the owner to end these deliveries; deletes those of a receiver that is unknown to it."""
        try:
            tenant, name = split_receiver(receiver)
        except InvalidName:
            # Nothing has such a name, and it may be too long for a subject.
            return await self._delete(progress, found)
        subject = self._names.control("erase", tenant, name)
        body = msgspec.json.encode(
            {"event": progress.erasure.event, "positions": [each.position for each in found]}
        )
        async with at_once:
            try:
                message = await self._js.request(subject, body, OWNER_TIMEOUT_S)
            except Unavailable:
                return f"no node answers for shard {shard_of(tenant, name, self._shards)} ({receiver})"
        answer = msgspec.json.decode(message.data)
        if answer["ok"]:
            progress.count(deliveries=answer["messages"], waiting=answer["waiting"])
            return ""
        if answer["error"]["code"] != "unknown_receiver":
            return str(answer["error"]["message"])
        return await self._delete(progress, found)

    async def _delete(self, progress: ErasureProgress, found: list[Mark]) -> str:
        for each in found:
            if await delete_known(self._js, self._names.deliveries, each):
                progress.count(deliveries=1)
        return ""

    async def _erase_dead_letters(self, progress: ErasureProgress, source_max: int | None = None) -> str:
        tenant, event = progress.erasure.tenant, progress.erasure.event
        for letter in await search.dead_letters(self._js, self._names, tenant, event, source_max):
            progress.found += 1
            if await delete_known(self._js, self._names.dead_letters, letter):
                progress.count(dead_letters=1)
        return ""

    async def erase_answers(self, progress: ErasureProgress, source_max: int | None = None) -> str:
        """Erase each flush that no recovery reads any more, and that is not its shard's last message.

        A copy without answers takes its place for readers: the flush has facts of other receivers, too.
        """
        js, names, tenant, event = self._js, self._names, progress.erasure.tenant, progress.erasure.event
        while found := await search.answers(js, names, tenant, event, source_max):
            for mark, shard in found.items():
                position = mark.position
                checkpoint = await read_checkpoint(js, names, shard)
                last = await js.last_message(names.journal, names.journal_of(shard))
                if checkpoint is None or checkpoint.journal_position < position or last is None:
                    return f"no checkpoint of shard {shard} is after an answer in the journal"
                if last.position <= position:
                    return f"shard {shard} has recorded nothing after an answer in the journal"
                message = await js.message(names.journal, position)
                wanted = _answers_in(names.journal_of(shard), tenant, event)
                if message is None or search.mark_of(message) != mark or not wanted(message):
                    return "the journal has changed while it was searched"
                await store_redacted(js, names, message)
                if await delete_known(js, names.journal, mark, wanted):
                    progress.count(flushes=1)
        return ""


def _answers_in(journal: str, tenant: str, event: str) -> Callable[[StoredMessage], bool]:
    """A test for messages of that subject of the journal that contain an answer to the event."""
    return lambda it: it.subject == journal and search.answers_event(it, tenant, event)
