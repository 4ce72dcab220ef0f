"""The jobs that one process works off: those that it accepted, and those that others have left behind.

Every process looks at the plans that have changed since its last look, so that nothing rests on the process
that accepted a job. Which one works it off is decided by the plan's lock.
"""

import asyncio
import logging
from collections import Counter

from msgspec import Struct

from actors.errors import AngariumError, Unavailable, Unusable
from angarium.connecting import Access
from angarium.operations.jobs import plans
from angarium.operations.jobs.plans import JobKind, StoredPlan, next_plan, plan_in
from angarium.operations.jobs.work import work_off
from angarium.rate_limited_log import RateLimitedLog
from streams.resending.plan_lock import LEASES_WAITED, Busy

LOOK_EVERY_S = 2.0
RETRY_AFTER_S = 15.0
"""Time until a job is tried again that could not go on: the stream was full, or NATS was away."""
JOBS_MAX = 8
TENANT_JOBS_MAX = 2
STOP_TIMEOUT_S = 4.0
"""Time for copies that are on their way; then the plan stays held, and another process waits for a lease."""

log = logging.getLogger(__name__)


class _Known(Struct):
    """An unfinished job: the plan as it was seen last, since when, and when it may be taken up."""

    stored: StoredPlan
    seen_at: float
    not_before: float = 0.0


class Jobs:
    """The jobs of one process; `look` says that there is a new one."""

    def __init__(self, to: Access) -> None:
        self._to = to
        self._positions: dict[JobKind, int] = {"replay": 0, "redrive": 0}
        self._known: dict[tuple[JobKind, str], _Known] = {}
        self._working: dict[tuple[JobKind, str], asyncio.Task[None]] = {}
        self._redrives_here = asyncio.Lock()
        self._woken = asyncio.Event()
        self._halted = False
        self._unread = RateLimitedLog(log, "job.unread")
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Take up what there is, and go on looking."""
        self._looking = asyncio.create_task(self._run())

    def look(self) -> None:
        """Look now: there is a new job."""
        self._woken.set()

    def halt(self) -> None:
        """Let the jobs be released as soon as nothing of theirs is on its way."""
        self._halted = True

    async def stop(self) -> None:
        """Return when nothing is worked off here any more."""
        self.halt()
        tasks = [*self._working.values(), *([self._looking] if self._looking else [])]
        if self._looking is not None:
            self._looking.cancel()
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=STOP_TIMEOUT_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._read()
            except Unavailable as error:
                log.debug("job.unread", extra={"why": str(error)})
            except AngariumError as error:
                self._unread(why=str(error))
            self._take_up()
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _read(self) -> None:
        """Read the plans that have changed. Raises Unavailable."""
        for kind in self._positions:
            while (message := await next_plan(self._to, kind, self._positions[kind])) is not None:
                self._positions[kind] = message.sequence
                try:
                    self._note(plan_in(self._to, message))
                except Unusable as error:
                    log.warning("job.unreadable", extra={"why": str(error)})

    def _note(self, stored: StoredPlan) -> None:
        key, now = (stored.kind, stored.owner), asyncio.get_running_loop().time()
        if stored.job is None or not stored.plan.unfinished:
            self._known.pop(key, None)
        elif (known := self._known.get(key)) is None:
            self._known[key] = _Known(stored, now)
        else:
            known.stored, known.seen_at = stored, now

    def _take_up(self) -> None:
        """Begin what may be begun: one that is held, only if its holder is silent for a lease."""
        now = asyncio.get_running_loop().time()
        tenants = Counter(owner.partition(".")[0] for _, owner in self._working)
        for key, known in self._known.items():
            free = not known.stored.plan.held or now - known.seen_at > plans.LEASE_S * LEASES_WAITED
            if self._halted or key in self._working or not free or now < known.not_before:
                continue
            if len(self._working) >= JOBS_MAX:
                return
            if tenants[known.stored.tenant] < TENANT_JOBS_MAX:
                tenants[known.stored.tenant] += 1
                self._working[key] = asyncio.create_task(self._work(key, known))

    async def _work(self, key: tuple[JobKind, str], known: _Known) -> None:
        known.not_before = asyncio.get_running_loop().time() + RETRY_AFTER_S
        why = ""
        try:
            why = await work_off(self._to, *key, lambda: self._halted, self._redrives_here)
        except Busy:
            log.debug("job.taken", extra={"job": known.stored.id})
        except AngariumError as error:
            why = str(error)
        finally:
            del self._working[key]
            self.look()
        if not why:
            known.not_before = 0.0
        elif not self._halted:
            log.warning("job.waits", extra={"job": known.stored.id, "why": why})
            known.not_before = asyncio.get_running_loop().time() + RETRY_AFTER_S
