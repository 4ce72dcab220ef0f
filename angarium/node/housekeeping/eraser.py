"""Erases events on request, on the node that owns shard 0: decides which request is tried when.

Replays and redrives may have the event in memory. They ask for it within a lease before they send a copy
(`streams.resending.sources`), so an erasure is done only if nothing is found after more than a lease without
the event. A copy that a suspended router had already given to its connection may come later than that, until
nats-server closes the connection. So the eraser looks once more for copies of erased events, and leaves
alone what producers sent after that.

A request costs a search in all that its tenant has stored. So tenants take turns, one request each, and the
eraser rests as long as it has worked. While it awaits owners it does not work: only the tenant of these
receivers, which may hang, waits as long again.
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from actors.errors import AngariumError
from actors.machine.bucket import CLOCK_SKEW_S
from angarium.node.housekeeping.erasure_steps import AnsweredOwners, ErasureProgress, ErasureSteps
from angarium.node.housekeeping.erasure_turns import ErasureTurns
from angarium.node.housekeeping.maintenance import DEPOSED_LEADER_MAX_S
from streams.buckets.stored_configurations import StoredConfigurations
from streams.erasing.erasures import Erasure, Erasures, finished
from streams.installation.topology import Names
from streams.journal.leadership import info_since, is_replicated
from streams.nats.jetstream import JetStream
from streams.nats.retry import ReasonLog
from streams.resending.plan_lock import LEASES_WAITED, LOCK_LEASE_S

TRY_EVERY_S = 1.0
COPIES_UNTIL_LEASE_ENDS_S = LOCK_LEASE_S * LEASES_WAITED
"""Time in which copies may still come of an event that is in no stream any more, by its leaders."""
LATE_COPY_MAX_S = 600.0
"""Time after which no connection can be alive that was silent since: nats-server closes it after 6 min by
default."""
LOOKED_AGAIN_WITHIN_S = 3600.0
"""Time within which a finished erasure is checked for late copies; after it, it never is."""
log = logging.getLogger(__name__)


class _PendingErasure(Struct):
    """A request that is not done, with what this epoch has found out.

    - `gone_since`: when the last copy that was found had been erased; None if that is not known.
    - `rest_until`: until then, it only waits for late copies.
    """

    answered: AnsweredOwners
    gone_since: float | None = None
    rest_until: float = 0.0


class _DoneErasure(Struct):
    """A record of a request that is done, known since `seen_at`, and whether late copies were looked for."""

    erasure: Erasure
    revision: int
    seen_at: float
    looked_again: bool = False


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
        self._steps = ErasureSteps(js, names, configurations, shards)
        self._epoch_of_shard_0 = epoch_of_shard_0
        self._epoch: int | None = None
        self._erasures = Erasures(js, names)
        self._turns = ErasureTurns()
        self._pending: dict[tuple[str, str], _PendingErasure] = {}
        self._done: dict[tuple[str, str], _DoneErasure] = {}
        self._awaited_s = 0.0
        self._tenants_rest_until: dict[str, float] = {}
        self._delayed = ReasonLog(js, log, "erasure.delayed")

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
            self._pending.clear()
        try:
            pending = await self._read()
        except AngariumError as error:
            self._delayed.log_once(str(error))
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
                self._delayed.log_once(f"{erasure.tenant}, event {erasure.event}: {error}")
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
                continue  # An older version recorded it.
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
            long_ago = now - done.seen_at > LATE_COPY_MAX_S or age > LATE_COPY_MAX_S + CLOCK_SKEW_S
            if age > LOOKED_AGAIN_WITHIN_S:
                del self._done[key]
            elif long_ago and not done.looked_again:
                due.append((done.erasure, done.revision))
        return due

    def _due(self, pending: list[tuple[Erasure, int]]) -> list[tuple[Erasure, int]]:
        """Pick the requests that do not only wait for late copies, and forget those that are done."""
        known, now = self._pending, asyncio.get_running_loop().time()
        keys = [_key(erasure) for erasure, _ in pending]
        self._pending = {key: known.get(key) or _PendingErasure(AnsweredOwners()) for key in keys}
        rests = self._tenants_rest_until = {
            tenant: until for tenant, until in self._tenants_rest_until.items() if until > now
        }
        return [
            each for each in pending
            if each[0].tenant not in rests and self._pending[_key(each[0])].rest_until <= now
        ]  # fmt: skip

    async def _try(self, erasure: Erasure, revision: int) -> None:
        pending = self._pending[_key(erasure)]
        progress = ErasureProgress(erasure, pending.answered)
        try:
            if waits_for := await self._erase(progress, pending):
                done = replace(progress.erasure, waits_for=waits_for)
            else:
                done = await self._finished(progress.erasure)
        except (AngariumError, TimeoutError) as error:
            done = replace(progress.erasure, waits_for=str(error) or "an answer of NATS")
        finally:
            self._note_awaited(progress)
        if done != erasure:
            await self._erasures.store_progress(done, revision)
        if done.done_at is not None:
            log.info("event.erased", extra={"tenant": done.tenant, "event_id": done.event, "by": done.by})

    async def _finished(self, erasure: Erasure, events_end: int | None = None) -> Erasure:
        """The record of an erasure that is done now.

        An end that is too low would keep answers in ledgers, and let the second search miss copies.
        """
        now = asyncio.get_running_loop().time()
        journal = await info_since(self._js, self._names.journal, now)
        if events_end is None:
            events_end = (await info_since(self._js, self._names.events, now)).last
        return finished(erasure, self._wall(), journal.last, events_end)

    async def _look_again(self, erasure: Erasure, revision: int) -> None:
        """Erase copies that came after the end; if any did, that is recorded, and looked for again.

        Such a copy may have become a dead letter by now, and have been answered. Both name its source, so
        they are found even if the copy was erased by an eraser that has died.
        """
        progress = ErasureProgress(erasure, AnsweredOwners())
        waits_for = await self._steps.erase_late(progress, erasure.events_end)
        if waits_for:
            self._delayed.log_once(f"{erasure.tenant}, event {erasure.event}: {waits_for}")
            late = replace(progress.erasure, waits_for=f"copies came late: {waits_for}")
            if late != erasure:
                await self._erasures.store_progress(late, revision)
            return
        if progress.erasure != erasure:
            done = await self._finished(progress.erasure, erasure.events_end)
            await self._erasures.store_progress(done, revision)
            fields = {"tenant": erasure.tenant, "event_id": erasure.event, "messages": progress.found}
            log.warning("event.erased_again", extra=fields)
        self._done[_key(erasure)].looked_again = True

    async def _erase(self, progress: ErasureProgress, pending: _PendingErasure) -> str:
        """Erase the copies that are found; done if none is found for long enough. Raises errors of NATS.

        Returns what it waits for, or an empty text.

        A replay asks for its sources without a proof: a leader that was deposed before their deletion may
        say that they are there.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        # If this fails, the erased copies are unknown.
        gone_since, pending.gone_since = pending.gone_since, None
        if waits_for := await self._steps.erase_copies(progress):
            return waits_for
        if progress.found or gone_since is None:
            gone_since = loop.time()
        pending.gone_since = gone_since
        if waits_for := await self._steps.erase_answers(progress):
            return waits_for
        deliveries = await self._js.existing_stream(self._names.deliveries)
        late_until = (
            gone_since
            + COPIES_UNTIL_LEASE_ENDS_S
            + (DEPOSED_LEADER_MAX_S if is_replicated(deliveries) else 0.0)
        )
        if began < late_until:
            pending.rest_until = late_until
            return "the last copies of a replay or a redrive may still arrive"
        if self._epoch_of_shard_0() != self._epoch:
            return "another node may have erased a copy meanwhile"
        return ""

    def _note_awaited(self, progress: ErasureProgress) -> None:
        """Let the tenant whose owners were awaited for long wait as long again."""
        self._awaited_s += progress.awaited_s
        if progress.awaited_s > TRY_EVERY_S:
            now = asyncio.get_running_loop().time()
            self._tenants_rest_until[progress.erasure.tenant] = now + progress.awaited_s


def _key(erasure: Erasure) -> tuple[str, str]:
    """The tenant and the event of a request, which are the same when it is tried again."""
    return erasure.tenant, erasure.event
