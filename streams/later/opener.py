"""Publishes the events of one partition again when they are due, second by second.

Each owner of the partition opens all seconds that have come, also those that earlier owners opened: what was
taken meanwhile has a stub there. An event may be published twice that way, and is taken once. A flood of one
tenant in one second does not hold up others: what is to be opened is cut into piles, which take turns, and a
large one is split by tenant.
"""

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from msgspec import Struct

from actors.errors import Unavailable
from streams.installation.later_subjects import MINUTE_S, spans
from streams.installation.topology import Names
from streams.later.entries import Cancelled, Entry, Taken, due_put, entry_in, events_age_s
from streams.nats.answers import Refused, Stored, StoredMessage, Unanswered
from streams.nats.errors import ApiError
from streams.nats.jetstream import ALL_SUBJECTS, JetStream
from streams.nats.retry import GatheredReasonLog, Pauses
from streams.tasks import cancel_and_wait, on_defect

SPLIT_AFTER = 256
"""Entries of a pile after which it is split by tenant."""
TURN_MAX = 16
"""Entries of a pile that are opened before another one has a turn."""
CLOCKS_DIFFER_MAX_S = 3_600
"""Room for clocks: an event may seem to be due before it was published."""
SECOND_SWEEP_S = 30.0
"""Time after which everything is opened once more: a leader that was deposed before the claim, and does not
know it, answers for some 10 s, and may lack the entries that the owner before stored last."""
LOOK_EVERY_S = 1.0
"""Time after which the clock is looked at: it may have been set back, and be set right meanwhile."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class _Pile(Struct):
    """Entries to be opened, from `position` on.

    `tenant`: the only one, or empty for all except `others`, who have piles of their own.
    """

    start: int
    size: int
    tenant: str = ""
    position: int = 1
    opened: int = 0
    others: frozenset[str] = frozenset()


class Opener:
    """The opener of one partition under one claim.

    - `wall`: the time in seconds since the epoch.
    - `may_publish`: asked before each publish.
    - `tenants`: returns the tenants of the partition that have receivers.
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
        on_broken: Callable[[str], None],
    ) -> None:
        self._js = js
        self._names = names
        self._partition = partition
        self._wall = wall
        self._may_publish = may_publish
        self._tenants = tenants
        self._on_broken = on_broken
        self._piles: deque[_Pile] = deque()
        self._noted: set[int] = set()
        self._woken = asyncio.Event()
        self._opened_to = 0
        self._empty_minute = -1
        self._age_s = math.inf
        self._running: asyncio.Task[None] | None = None
        self._reason_log = GatheredReasonLog(js, log, "later.waiting")

    def start(self) -> None:
        """Begin to open."""
        self._running = asyncio.ensure_future(self._run())
        self._running.add_done_callback(on_defect("router", self._on_broken))

    async def stop(self) -> None:
        """Open nothing more."""
        running, self._running = self._running, None
        await cancel_and_wait(running)

    def note(self, second: int) -> None:
        """Note that there is an entry that is due then."""
        is_soon = second < max(self._opened_to, self._wall() + MINUTE_S)
        # If the clock was set back, a minute that was found empty may come much later.
        if is_soon or second - second % MINUTE_S == self._empty_minute:
            self._noted.add(second)
            self._woken.set()

    async def _run(self) -> None:
        self._age_s = await self._answered(partial(events_age_s, self._js, self._names))
        self._opened_to = await self._answered(self._first_second)
        clock = asyncio.get_running_loop().time
        sweep_again_at = clock() + SECOND_SWEEP_S
        while True:
            if clock() >= sweep_again_at:
                sweep_again_at = math.inf
                self._empty_minute = -1
                start = await self._answered(self._first_second)
                self._piles += [_Pile(*span) for span in spans(start, self._opened_to)]
            await self._plan(int(self._wall()) + 1)
            while self._piles:
                pile = self._piles.popleft()
                if not await self._answered(partial(self._open_some, pile)):
                    self._piles.append(pile)
                await self._plan(int(self._wall()) + 1)
            await self._next_second()

    async def _first_second(self) -> int:
        return await first_second(self._js, self._names, self._age_s, self._wall)

    async def _next_second(self) -> None:
        """Wait for the next second, or for an entry that is due already."""
        self._woken.clear()
        wait_s = min(LOOK_EVERY_S, min((self._opened_to, *self._noted)) - self._wall())
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    async def _plan(self, end: int) -> None:
        """Plan to open everything that is due before `end`, except seconds that are known to be empty."""
        # If the clock was set back, seconds that were opened may come once more.
        late = {second for second in self._noted if second < min(self._opened_to, end)}
        self._piles += [_Pile(second, 1) for second in sorted(late)]
        self._noted -= late
        for start, size in spans(self._opened_to, max(end, self._opened_to)):
            self._opened_to = start + size
            if size > 1 or start in self._noted or not await self._answered(partial(self._is_empty, start)):
                self._piles.append(_Pile(start, size))
            self._noted.difference_update(range(start, start + size) if size <= MINUTE_S else ())

    async def _is_empty(self, second: int) -> bool:
        """True if the minute of the second had no entry when it began."""
        minute = second - second % MINUTE_S
        if self._empty_minute == minute:
            return True
        subject = self._names.later_subjects.due_in(self._partition, minute, MINUTE_S)
        if await self._js.next_message(self._names.later, subject, 1) is not None:
            return False
        self._empty_minute = minute
        return True

    async def _open_some(self, pile: _Pile) -> bool:
        """Open some entries of a pile; returns whether it is done with."""
        subject = self._names.later_subjects.due_in(
            self._partition, pile.start, pile.size, pile.tenant or "*"
        )
        for _ in range(TURN_MAX):
            message = await self._js.next_message(self._names.later, subject, pile.position)
            if message is None:
                return True
            if self._names.later_subjects.tenant_of_entry(message.subject) not in pile.others:
                await self._open(message)
            pile.position, pile.opened = message.position + 1, pile.opened + 1
        if pile.opened >= SPLIT_AFTER and not pile.tenant and not pile.others:
            pile.others = frozenset(self._tenants())
            self._piles += [
                _Pile(pile.start, pile.size, tenant, pile.position) for tenant in sorted(pile.others)
            ]
        return False

    async def _open(self, message: StoredMessage) -> None:
        """Publish the event of an entry. Raises `Unavailable`, and `ApiError`."""
        match entry_in(self._names, message):
            case Entry() as entry if entry.is_void(self._age_s):
                log.warning("later.void", extra={"subject": message.subject})
                await self._js.delete(self._names.later, message.position)
            case Entry() as entry:
                await self._publish(entry)
            case None | Taken() | Cancelled():
                return

    async def _publish(self, entry: Entry) -> None:
        if not self._may_publish():
            raise Unavailable("the lease of this node has expired")
        put = due_put(self._names, entry)
        match await self._js.publish(put.subject, put.data, put.headers):
            case Stored():
                return
            case Refused(code, text):
                raise ApiError(code, text)
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
        published_from = min(datetime.fromisoformat(each.created).timestamp() for each in streams)
    return max(0, min(now, int(published_from) - CLOCKS_DIFFER_MAX_S))
