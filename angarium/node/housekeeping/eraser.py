"""Erases events on request, on the node that owns shard 0.

The order matters. What producers published goes first, once it is routed: until then, a router may have it in
memory. Then each owner ends the deliveries of its receivers, on record, and drops their messages
(`actors.runtime.operator_requests.end_deliveries`). Dead letters follow: an owner may still have stored one.
Last go those flushes of the journal that hold answers of receivers, which may repeat the body; no recovery
ever reads before a checkpoint, so none misses them (`docs/decisions/erased-everywhere.md`).

Replays and redrives may have the event in memory, too. They ask for it within a lease before they send a copy
(`streams.resending.sources`), so an erasure is done only if nothing is found after more than a lease without
the event. A copy that a suspended router had already given to its connection may come later than that, until
nats-server closes the connection. So the eraser looks once more for copies of erased events, and leaves
alone what producers sent after that. Nothing here is fenced, and nothing has to be: erasing twice has the
effect of erasing once, and an ended delivery stays ended.

A request costs a search in all that its tenant has stored. So tenants take turns, one request each, and the
eraser rests as long as it has worked. While it awaits owners it does not work: only the tenant of these
receivers, which may hang, waits as long again.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.errors import AngariumError, InvalidName, Unavailable
from actors.ids import split_receiver
from angarium.node.housekeeping.erasure_turns import ErasureTurns
from angarium.node.housekeeping.maintenance import DEPOSED_LEADER_MAX_S
from streams.buckets.receivers import CLOCKS_DIFFER_S
from streams.buckets.stored_configurations import StoredConfigurations
from streams.erasing import search
from streams.erasing.erasures import Erasure, Erasures, finished
from streams.installation.partitions import shard_of
from streams.installation.topology import Names
from streams.journal.checkpoint import read_checkpoint
from streams.journal.claim import read_past
from streams.journal.leadership import info_since, replicated
from streams.journal_feed.redacted_flushes import store_redacted
from streams.lost_tails.deletion import delete_known
from streams.lost_tails.marks import Mark
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.retry import Complaint
from streams.resending.plan_lock import LEASES_WAITED, LOCK_LEASE_S

TRY_EVERY_S = 1.0
LATE_COPIES_S = LOCK_LEASE_S * LEASES_WAITED
"""Time in which copies may still come of an event that is in no stream any more, by its leaders."""
LATE_BYTES_S = 600.0
"""Time after which no connection can be alive that was silent since: nats-server closes it after 6 min by
default."""
LOOKED_AGAIN_WITHIN_S = 3600.0
"""Time within which a finished erasure is checked for late copies; after it, it never is."""
OWNER_TIMEOUT_S = 10.0
"""Time for the owners of a tenant's receivers to answer, all together. They await the attempts under way, and
may be asked again meanwhile."""
OWNERS_ASKED_AT_ONCE = 16
ANSWERED_FOR_S = 600.0
"""Time in which an owner that has answered is not asked again, if others have not: there may be 100,000."""
log = logging.getLogger(__name__)


class _ErasureProgress:
    """One request under way; `found` counts the messages that held the event as it was published."""

    def __init__(self, erasure: Erasure) -> None:
        self.erasure = replace(erasure, waits_for="")
        self.found = 0

    def count(self, **more: int) -> None:
        """Add to the totals."""
        totals = {name: getattr(self.erasure, name) + count for name, count in more.items()}
        self.erasure = replace(self.erasure, **totals)


class _DoneErasure(Struct):
    """A record of a request that is done, known since `seen_at`, and whether late copies were looked for."""

    erasure: Erasure
    revision: int
    seen_at: float
    looked_again: bool = False


class _Answered(Struct):
    """The receivers whose owners have nothing of an event any more, and since when they have been asked."""

    since: float
    receivers: set[str]


class Eraser:
    """Erases for the installation as long as `epoch_of_shard_0` says that it is this node's turn.

    What it knows of a request is of one epoch: in between, another node may have erased a copy.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        configurations: StoredConfigurations,
        wall: Callable[[], float],
        shards: int,
        epoch_of_shard_0: Callable[[], int | None],
    ) -> None:
        self._js = js
        self._names = names
        self._wall = wall
        self._configurations = configurations
        self._shards = shards
        self._epoch_of_shard_0 = epoch_of_shard_0
        self._epoch: int | None = None
        self._erasures = Erasures(js, names)
        self._turns = ErasureTurns()
        self._gone_since: dict[tuple[str, str], float] = {}
        self._rest_until: dict[tuple[str, str], float] = {}
        self._done: dict[tuple[str, str], _DoneErasure] = {}
        self._answered: dict[tuple[str, str], _Answered] = {}
        self._awaited_s = 0.0
        self._tenants_rest_until: dict[str, float] = {}
        self._delayed = Complaint(js, log, "erasure.delayed")

    async def run(self) -> None:
        """Run until it is cancelled."""
        loop = asyncio.get_running_loop()
        rest = TRY_EVERY_S
        while True:
            await asyncio.sleep(rest)
            began, self._awaited_s = loop.time(), 0.0
            more = self._epoch_of_shard_0() is not None and await self.erase_due()
            worked = max(0.0, loop.time() - began - self._awaited_s)
            rest = worked if more else max(worked, TRY_EVERY_S)

    async def erase_due(self) -> bool:
        """Try one request of each tenant; True if others are left that have not had their turn."""
        if self._epoch != (epoch := self._epoch_of_shard_0()):
            self._epoch = epoch
            self._gone_since.clear()
            self._rest_until.clear()
            self._answered.clear()
        try:
            pending = await self._read()
        except AngariumError as error:
            self._delayed.tell(str(error))
            return False
        due = self._due(pending) + self._due_again()
        turns, more = self._turns.take(sorted(due, key=lambda each: each[1]))
        for erasure, revision in turns:
            try:
                if erasure.done_at is None:
                    await self._try(erasure, revision)
                else:
                    await self._look_again(erasure, revision)
            except AngariumError as error:
                self._delayed.tell(f"{erasure.tenant}, event {erasure.event}: {error}")
            except Exception:  # The next request may go well.
                log.exception("erasure.broken", extra={"tenant": erasure.tenant, "event_id": erasure.event})
        return more

    async def _read(self) -> list[tuple[Erasure, int]]:
        """The requests to carry out; remembers those that were done lately. Raises errors of NATS."""
        pending = []
        async for erasure, revision in self._erasures.unread(self._wall() - LOOKED_AGAIN_WITHIN_S):
            key = _key(erasure)
            if erasure.done_at is None:
                self._done.pop(key, None)
                pending.append((erasure, revision))
            elif not erasure.events_end:
                continue  # A version before recorded it.
            elif key not in self._done or self._done[key].revision != revision:
                self._done[key] = _DoneErasure(erasure, revision, asyncio.get_running_loop().time())
        return pending

    def _due_again(self) -> list[tuple[Erasure, int]]:
        """The requests that were done so long ago that no late copy can arrive.

        The time at which it was done is by the clock of the node that did it, which may be ahead of ours.
        """
        now, wall, due = asyncio.get_running_loop().time(), self._wall(), []
        for key, done in list(self._done.items()):
            age = wall - (done.erasure.done_at or 0.0)
            long_ago = now - done.seen_at > LATE_BYTES_S or age > LATE_BYTES_S + CLOCKS_DIFFER_S
            if age > LOOKED_AGAIN_WITHIN_S:
                del self._done[key]
            elif long_ago and not done.looked_again:
                due.append((done.erasure, done.revision))
        return due

    def _due(self, pending: list[tuple[Erasure, int]]) -> list[tuple[Erasure, int]]:
        """Pick the requests that do not only wait for late copies, and forget those that are done."""
        known, now = {_key(erasure) for erasure, _ in pending}, asyncio.get_running_loop().time()
        self._gone_since = {key: at for key, at in self._gone_since.items() if key in known}
        self._rest_until = {key: at for key, at in self._rest_until.items() if key in known}
        self._answered = {key: each for key, each in self._answered.items() if key in known}
        rests = self._tenants_rest_until = {
            tenant: until for tenant, until in self._tenants_rest_until.items() if until > now
        }
        return [
            each for each in pending
            if each[0].tenant not in rests and self._rest_until.get(_key(each[0]), now) <= now
        ]  # fmt: skip

    async def _try(self, erasure: Erasure, revision: int) -> None:
        progress = _ErasureProgress(erasure)
        try:
            if waits_for := await self._erase(progress):
                done = replace(progress.erasure, waits_for=waits_for)
            else:
                done = await self._finished(progress.erasure)
        except (AngariumError, TimeoutError) as error:
            done = replace(progress.erasure, waits_for=str(error) or "an answer of NATS")
        if done != erasure:
            await self._erasures.store_progress(done, revision)
        if done.done_at is not None:
            log.info("event.erased", extra={"tenant": done.tenant, "event_id": done.event, "by": done.by})

    async def _finished(self, erasure: Erasure, events_end: int | None = None) -> Erasure:
        """The record of an erasure that is done now.

        An end that is too low would keep answers in ledgers, and let the second look miss copies.
        """
        now = asyncio.get_running_loop().time()
        journal = await info_since(self._js, self._names.journal, now)
        if events_end is None:
            events_end = (await info_since(self._js, self._names.events, now)).last
        return finished(erasure, self._wall(), journal.last, events_end)

    async def _look_again(self, erasure: Erasure, revision: int) -> None:
        """Erase copies that came after the end; if any did, that is recorded, and looked for again.

        Such a copy may have become a dead letter by now, and have been answered. Both tell its source, so
        they are found even if the copy was erased by an eraser that has died.
        """
        progress, told = _ErasureProgress(erasure), {"tenant": erasure.tenant, "event_id": erasure.event}
        waits_for = await self._erase_late(progress, erasure.events_end)
        if waits_for:
            self._delayed.tell(f"{erasure.tenant}, event {erasure.event}: {waits_for}")
            late = replace(progress.erasure, waits_for=f"copies came late: {waits_for}")
            if late != erasure:
                await self._erasures.store_progress(late, revision)
            return
        if progress.erasure != erasure:
            done = await self._finished(progress.erasure, erasure.events_end)
            await self._erasures.store_progress(done, revision)
            log.warning("event.erased_again", extra=told | {"messages": progress.found})
        self._done[_key(erasure)].looked_again = True

    async def _erase_late(self, progress: _ErasureProgress, source_max: int) -> str:
        """Erase what routers have made late of messages up to that position."""
        tenant, event = progress.erasure.tenant, progress.erasure.event
        found = await search.late_copies(self._js, self._names, tenant, event, source_max)
        for receiver, copies in found.items():
            progress.found += len(copies)
            if waits_for := await self._ask_owner(progress, receiver, copies, asyncio.Semaphore(1)):
                return waits_for
        return (
            await self._erase_dead_letters(progress, source_max)
            or await self._erase_answers(progress, source_max)
        )  # fmt: skip

    # Each step returns the condition that it waits for; an empty text if there is none.

    async def _erase(self, progress: _ErasureProgress) -> str:
        """Erase the copies that are found; done if none is found for long enough. Raises errors of NATS.

        A replay asks for its sources without a proof: a leader that was deposed before their deletion may
        say that they are there.
        """
        loop, key = asyncio.get_running_loop(), _key(progress.erasure)
        began = loop.time()
        gone_since = self._gone_since.pop(key, None)  # If this fails, the erased copies are unknown.
        if waits_for := await self._erase_copies(progress):
            return waits_for
        if progress.found or gone_since is None:
            gone_since = loop.time()
        self._gone_since[key] = gone_since
        if waits_for := await self._erase_answers(progress):
            return waits_for
        deliveries = await self._js.existing_stream(self._names.deliveries)
        late_until = gone_since + LATE_COPIES_S + (DEPOSED_LEADER_MAX_S if replicated(deliveries) else 0.0)
        if began < late_until:
            self._rest_until[key] = late_until
            return "the last copies of a replay or a redrive may still arrive"
        if self._epoch_of_shard_0() != self._epoch:
            return "another node may have erased a copy meanwhile"
        return ""

    async def _erase_copies(self, progress: _ErasureProgress) -> str:
        """Erase the messages that hold the event as it was published."""
        return (
            await self._erase_events(progress)
            or await self._end_deliveries(progress)
            or await self._erase_dead_letters(progress)
        )

    async def _erase_events(self, progress: _ErasureProgress) -> str:
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
        _, _, partition, tenant, _ = message.subject.split(".", 4)
        past = await read_past(self._js, self._names, int(partition))
        return past.routing is not None and past.routing.covers(tenant, message.sequence)

    async def _end_deliveries(self, progress: _ErasureProgress) -> str:
        found = await search.deliveries(
            self._js, self._names, progress.erasure.tenant, progress.erasure.event
        )
        # The memory of the others may hold an answer that repeats the body, and their shards must continue.
        others = set(await self._configurations.names(progress.erasure.tenant)) - found.keys()
        loop, key = asyncio.get_running_loop(), _key(progress.erasure)
        began = loop.time()
        answered = self._answered.get(key)
        if answered is None or began - answered.since > ANSWERED_FOR_S:
            answered = self._answered[key] = _Answered(began, set())
        try:
            async with asyncio.timeout(OWNER_TIMEOUT_S):
                waits_for = await self._ask_owners(progress, found, others - answered.receivers, answered)
        except TimeoutError:
            return "owners of its tenant's receivers have not answered yet"
        finally:
            took = loop.time() - began
            self._awaited_s += took
            if took > TRY_EVERY_S:
                self._tenants_rest_until[progress.erasure.tenant] = loop.time() + took
        del self._answered[key]
        return waits_for

    async def _ask_owners(
        self,
        progress: _ErasureProgress,
        found: dict[str, list[Mark]],
        others: set[str],
        answered: _Answered,
    ) -> str:
        turn = asyncio.Semaphore(OWNERS_ASKED_AT_ONCE)

        async def ask(receiver: str) -> str:
            waits_for = await self._ask_owner(progress, receiver, [], turn)
            if not waits_for:
                answered.receivers.add(receiver)
            return waits_for

        if waits_for := next(filter(None, await asyncio.gather(*map(ask, sorted(others)))), ""):
            return waits_for
        progress.found += len(found)
        for receiver, copies in found.items():
            if waits_for := await self._ask_owner(progress, receiver, copies, asyncio.Semaphore(1)):
                return waits_for
        return ""

    async def _ask_owner(
        self, progress: _ErasureProgress, receiver: str, found: list[Mark], turn: asyncio.Semaphore
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
        async with turn:
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

    async def _delete(self, progress: _ErasureProgress, found: list[Mark]) -> str:
        for each in found:
            if await delete_known(self._js, self._names.deliveries, each):
                progress.count(deliveries=1)
        return ""

    async def _erase_dead_letters(self, progress: _ErasureProgress, source_max: int | None = None) -> str:
        tenant, event = progress.erasure.tenant, progress.erasure.event
        for letter in await search.dead_letters(self._js, self._names, tenant, event, source_max):
            progress.found += 1
            if await delete_known(self._js, self._names.dead_letters, letter):
                progress.count(dead_letters=1)
        return ""

    async def _erase_answers(self, progress: _ErasureProgress, source_max: int | None = None) -> str:
        """Erase each flush that no recovery reads any more, and that is not its shard's last message.

        A copy without answers takes its place for readers: the flush has facts of other receivers, too.
        """
        js, names, tenant, event = self._js, self._names, progress.erasure.tenant, progress.erasure.event
        while found := await search.answers(js, names, tenant, event, source_max):
            for mark, shard in found.items():
                position = mark.position
                checkpoint = await read_checkpoint(js, names, shard)
                last = await js.last_message(names.journal, names.journal_of(shard))
                if checkpoint is None or checkpoint.sequence < position or last is None:
                    return f"no checkpoint of shard {shard} is after an answer in the journal"
                if last.sequence <= position:
                    return f"shard {shard} has recorded nothing after an answer in the journal"
                message = await js.message(names.journal, position)
                wanted = _answers_in(shard, tenant, event)
                if message is None or search.mark_of(message) != mark or not wanted(message):
                    return "the journal has changed while it was searched"
                await store_redacted(js, names, message)
                if await delete_known(js, names.journal, mark, wanted):
                    progress.count(flushes=1)
        return ""


def _answers_in(shard: int, tenant: str, event: str) -> Callable[[StoredMessage], bool]:
    """Tells messages of a shard of the journal that have an answer to the event."""
    return lambda it: search.shard_of_flush(it) == shard and search.answers_event(it, tenant, event)


def _key(erasure: Erasure) -> tuple[str, str]:
    """The tenant and the event of a request, which are the same when it is tried again."""
    return erasure.tenant, erasure.event
