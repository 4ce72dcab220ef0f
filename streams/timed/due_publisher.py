"""Publishes the events of one partition again when they are due, second by second.

Each owner of the partition publishes all seconds that have come, also those that earlier owners published:
what was taken meanwhile has a stub there. An event may be published twice that way, and is taken once. A
flood of one tenant does not hold up others: what is due is cut into batches, a large one is split by tenant,
and tenants take turns (`streams.timed.due_queues`). Nor does an event that the events stream refuses: one
that is too large for it is set aside, and if one is refused for another reason, such as a full stream, its
tenant waits.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from functools import partial
from typing import TypeVar, assert_never

from actors.errors import Unavailable
from streams.installation.partitions import tenants_of_partition
from streams.installation.timed_subjects import MINUTE_S, spans
from streams.installation.topology import Names
from streams.nats.answers import Refused, Stored, StoredMessage, Unanswered
from streams.nats.errors import ApiError
from streams.nats.jetstream import ALL_SUBJECTS, JetStream
from streams.nats.protocol import timestamp_of
from streams.nats.retry import GatheredReasonLog, Pauses
from streams.nats.wire_names import MESSAGE_TOO_LARGE
from streams.tasks import cancel_and_wait, on_defect
from streams.timed.due_queues import DueBatch, DueQueues
from streams.timed.entries import (
    CLOCKS_DIFFER_MAX_S,
    CancelledStub,
    Entry,
    TakenStub,
    due_put,
    entry_in,
    events_age_s,
)

SPLIT_AFTER = 256
"""Entries of a batch after which it is split by tenant."""
TURN_MAX = 16
"""Entries of a batch that are published before another one has a turn."""
SECOND_SWEEP_S = 30.0
"""Time after which everything is published once more: a leader that was deposed before the claim, and does
not know it, answers for some 10 s, and may lack the entries that the owner before stored last."""
REFUSED_PAUSE_MIN_S = 1.0
REFUSED_PAUSE_MAX_S = 30.0
"""Pauses of a batch whose event is refused; each is twice as long as the one before."""
REFUSED_BATCHES_MAX = 4_096
"""Batches that wait because an event of theirs was refused. With more of them, all batches wait."""
CLOCK_CHECK_EVERY_S = 1.0
"""Time after which the clock is read again: it may have been set back, and be set right meanwhile."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class _Turn(Enum):
    """The end of a batch's turn: nothing of it is left, something is, or an event was refused."""

    DONE = "done"
    UNFINISHED = "unfinished"
    REFUSED = "refused"


class DuePublisher:
    """The publisher of one partition under one claim.

    - `wall`: the time in seconds since the epoch.
    - `may_publish`: asked before each publish.
    - `tenants`: returns the tenants that have subscribers, of all `partitions`.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        partition: int,
        *,
        wall: Callable[[], float],
        may_publish: Callable[[], bool],
        tenants: Callable[[], Sequence[str]],
        partitions: int,
        on_broken: Callable[[str], None],
    ) -> None:
        self._js = js
        self._names = names
        self._partition = partition
        self._wall = wall
        self._may_publish = may_publish
        self._tenants = tenants
        self._partitions = partitions
        self._on_broken = on_broken
        self._queues = DueQueues()
        self._refused: list[DueBatch] = []
        self._noted: set[int] = set()
        self._woken = asyncio.Event()
        self._planned_to = 0
        self._empty_minute = -1
        self._age_s = math.inf
        self._running: asyncio.Task[None] | None = None
        self._reason_log = GatheredReasonLog(js, log, "later.waiting")
        self._refused_log = GatheredReasonLog(js, log, "later.refused")

    def start(self) -> None:
        """Begin to publish."""
        self._running = asyncio.ensure_future(self._run())
        self._running.add_done_callback(on_defect("router", self._on_broken))

    async def stop(self) -> None:
        """Publish nothing more."""
        running, self._running = self._running, None
        await cancel_and_wait(running)

    def note(self, second: int) -> None:
        """Note that there is an entry that is due then."""
        planned_to = max(self._planned_to, self._wall() + MINUTE_S)
        if is_missed(second, planned_to, self._empty_minute):
            self._noted.add(second)
            self._woken.set()

    async def _run(self) -> None:
        self._age_s = await self._answered(partial(events_age_s, self._js, self._names))
        self._planned_to = await self._answered(self._first_second)
        clock = asyncio.get_running_loop().time
        sweep_again_at = clock() + SECOND_SWEEP_S
        while True:
            if clock() >= sweep_again_at:
                sweep_again_at = math.inf
                self._empty_minute = -1
                start = await self._answered(self._first_second)
                for span in spans(start, self._planned_to):
                    self._queues.add(_batch(*span))
            await self._plan(int(self._wall()) + 1)
            self._resume_refused(clock())
            if not self._queues:
                await self._next_second()
                continue
            batch = self._queues.next()
            match await self._answered(partial(self._publish_some, batch)):
                case _Turn.DONE:
                    pass
                case _Turn.UNFINISHED:
                    self._queues.put_back(batch)
                case _Turn.REFUSED:
                    self._set_aside(batch)
                case never:
                    assert_never(never)

    async def _first_second(self) -> int:
        return await first_second(self._js, self._names, self._age_s, self._wall)

    async def _next_second(self) -> None:
        """Wait for the next second, or for an entry that is due already."""
        self._woken.clear()
        wait_s = min(CLOCK_CHECK_EVERY_S, min((self._planned_to, *self._noted)) - self._wall())
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    async def _plan(self, end: int) -> None:
        """Plan to publish everything that is due before `end`, except seconds that are known to be empty."""
        # If the clock was set back, seconds that were published may come once more.
        late = {second for second in self._noted if second < min(self._planned_to, end)}
        for second in sorted(late):
            self._queues.add(_batch(second, 1))
        self._noted -= late
        for start, size in spans(self._planned_to, max(end, self._planned_to)):
            self._planned_to = start + size
            if size > 1 or start in self._noted or not await self._answered(partial(self._is_empty, start)):
                self._queues.add(_batch(start, size))
            self._noted.difference_update(range(start, start + size) if size <= MINUTE_S else ())

    async def _is_empty(self, second: int) -> bool:
        """True if the minute of the second had no entry when it began."""
        minute = second - second % MINUTE_S
        if self._empty_minute == minute:
            return True
        subject = self._names.timed_subjects.due_in(self._partition, minute, MINUTE_S)
        if await self._js.next_message(self._names.later, subject, 1) is not None:
            return False
        self._empty_minute = minute
        return True

    def _resume_refused(self, now: float) -> None:
        """Give batches another turn whose pause is over."""
        for batch in self._refused:
            if batch.again_at <= now:
                self._queues.add(batch)
        self._refused = [batch for batch in self._refused if batch.again_at > now]

    def _set_aside(self, batch: DueBatch) -> None:
        """Let a batch of one tenant wait whose next event was refused."""
        batch.again_at = asyncio.get_running_loop().time() + batch.pause_s
        batch.pause_s = min(2 * batch.pause_s, REFUSED_PAUSE_MAX_S)
        self._refused.append(batch)

    async def _publish_some(self, batch: DueBatch) -> _Turn:
        """Publish some entries of a batch. Raises `Unavailable`, and `ApiError`."""
        subject = self._names.timed_subjects.due_in(
            self._partition, batch.start, batch.size, batch.tenant or "*"
        )
        for _ in range(1 if batch.is_single else TURN_MAX):
            message = await self._js.next_message(self._names.later, subject, batch.position)
            if message is None or (batch.is_single and message.position != batch.position):
                return _Turn.DONE
            tenant = self._names.timed_subjects.tenant_of_entry(message.subject)
            if tenant not in batch.others and (refused := await self._publish_message(message)) is not None:
                self._note_refused(refused, tenant)
                is_too_large = refused.code == MESSAGE_TOO_LARGE
                if batch.is_single or (batch.tenant and not is_too_large):
                    return _Turn.REFUSED
                self._set_aside(
                    _batch(batch.start, batch.size, tenant, message.position, is_single=is_too_large)
                )
                if not is_too_large:
                    batch.others |= {tenant}
            if batch.is_single:
                return _Turn.DONE
            batch.position, batch.published = message.position + 1, batch.published + 1
            batch.pause_s = REFUSED_PAUSE_MIN_S
        if batch.published >= SPLIT_AFTER and not batch.tenant and not batch.is_split:
            await self._split(batch)
        return _Turn.UNFINISHED

    async def _split(self, batch: DueBatch) -> None:
        """Leave only tenants without subscribers to a batch; the others of the partition have one each."""
        tenants = await tenants_of_partition(self._tenants(), self._partition, self._partitions)
        for tenant in sorted({*tenants} - batch.others):
            self._queues.add(_batch(batch.start, batch.size, tenant, batch.position))
        batch.others, batch.is_split = batch.others.union(tenants), True

    def _note_refused(self, refused: Refused, tenant: str) -> None:
        """Log a refusal. Raises `ApiError` if too many batches wait: then all wait."""
        if len(self._refused) >= REFUSED_BATCHES_MAX:
            raise ApiError(refused.code, refused.text)
        self._refused_log.log_once(refused.text, partition=self._partition, tenant=tenant)

    async def _publish_message(self, message: StoredMessage) -> Refused | None:
        """Publish the event of an entry; returns a refusal. Raises `Unavailable`, and `ApiError`."""
        match entry_in(self._names, message):
            case Entry() as entry if entry.is_void(self._age_s):
                log.warning("later.void", extra={"subject": message.subject})
                await self._js.delete(self._names.later, message.position)
                return None
            case Entry() as entry:
                return await self._publish(entry)
            case None | TakenStub() | CancelledStub():
                return None

    async def _publish(self, entry: Entry) -> Refused | None:
        if not self._may_publish():
            raise Unavailable("the lease of this node has expired")
        put = due_put(self._names, entry)
        match await self._js.publish(put.subject, put.data, put.headers):
            case Stored():
                return None
            case Refused() as refused:
                return refused
            case Unanswered(why):
                raise Unavailable(why)

    async def _answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer; why there is none is logged once."""
        pauses = Pauses(self._js)
        while True:
            try:
                answer = await ask()
            except (Unavailable, ApiError) as error:
                self._reason_log.log_once(str(error), partition=self._partition)
                await pauses.wait()
            else:
                self._reason_log.clear()
                return answer


def _batch(
    start: int, size: int, tenant: str = "", position: int = 1, *, is_single: bool = False
) -> DueBatch:
    """A batch of which nothing was refused yet."""
    return DueBatch(start, size, REFUSED_PAUSE_MIN_S, tenant, position, is_single=is_single)


def is_missed(second: int, planned_to: float, empty_minute: int) -> bool:
    """True if no plan finds a new entry of that second: it is before `planned_to`, or in that minute.

    If the clock was set back, a minute that was found empty may come much later.
    """
    return second < planned_to or second - second % MINUTE_S == empty_minute


async def first_second(js: JetStream, names: Names, age_s: float, wall: Callable[[], float]) -> int:
    """The first second in which an entry may be due. Raises `Unavailable` and `ApiError`.

    The event of an entry was published before it was due, and at most `age_s` before the entry was stored,
    however late that was: what was under way for longer is void.
    """
    first = await js.next_message(names.later, ALL_SUBJECTS, 1)
    now = int(wall())
    if first is None:
        return now
    published_from = first.stored_at - age_s
    if age_s == math.inf:
        streams = [await js.existing_stream(stream) for stream in (names.events, names.later)]
        published_from = min(timestamp_of(each.created) for each in streams)
    return max(0, min(now, int(published_from) - CLOCKS_DIFFER_MAX_S))
