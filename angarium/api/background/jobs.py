"""Runs jobs in one process: those that it accepted, and those that other processes left behind.

Every process reads the plans that have changed since its last read, so that no job depends on the process
that accepted it. The plan's lock decides which process runs it.
"""

import asyncio
import logging

from msgspec import Struct

from actors.errors import AngariumError, Unavailable, Unusable
from actors.ids import tenant_of
from angarium.access import Access
from angarium.operations.failures import operation
from angarium.operations.jobs.job_slots import JobKey, JobSlots, WaitingJob
from angarium.operations.jobs.plans import JobKind, StoredPlan, is_over, next_plan, plan_in
from angarium.operations.jobs.run import run_job
from angarium.rate_limited_log import RateLimitedLog
from streams.clock import SystemTime
from streams.lost_tails.marks import Mark
from streams.lost_tails.read_positions import BucketPosition
from streams.resending import plan_lock
from streams.resending.plan_lock import LEASES_WAITED, LockHeld
from streams.resending.replay import HALTED

READ_PLANS_EVERY_S = 2.0
RETRY_AFTER_S = 15.0
"""Time until a job is retried that could not continue: the stream was full, or NATS was away."""
UNFINISHED_MAX = 256
"""Unfinished replays of a tenant: each is read, kept and looked through by every process."""
STOP_TIMEOUT_S = 4.0
"""Time for copies in flight; after it the plan stays held, and another process has to wait for a lease."""

log = logging.getLogger(__name__)


class _KnownJob(Struct):
    """An unfinished job: the last plan that was seen, when it was seen, and when the job may be taken up.

    `waits_since`: when the job was first seen, or last left its slot.
    """

    stored: StoredPlan
    seen_at: float
    waits_since: float
    not_before: float = 0.0


class Jobs:
    """The jobs of one process; call `wake` when there is a new one.

    All redrives of the process take turns with the lock `redrives_here`.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._places: dict[JobKind, BucketPosition] = {
            "replay": BucketPosition(access.js, access.names.actors),
            "redrive": BucketPosition(access.js, access.names.actors),
        }
        self._known: dict[JobKey, _KnownJob] = {}
        self._ended: dict[JobKey, StoredPlan] = {}
        self._reading = asyncio.Lock()
        self._read_from = float("-inf")
        self._slots = JobSlots()
        self._working: dict[JobKey, asyncio.Task[None]] = {}
        self.redrives_here = asyncio.Lock()
        self._woken = asyncio.Event()
        self._halted = False
        self._unread = RateLimitedLog(log, "job.unread")
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Take up the unfinished jobs, and look for new ones from now on."""
        self._running = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Look for jobs now: there is a new one, or room for one."""
        self._woken.set()

    def unfinished(self) -> list[StoredPlan]:
        """The plans of the jobs that are not finished, as this process last read them."""
        return [known.stored for known in self._known.values()]

    @property
    def working(self) -> tuple[JobKey, ...]:
        """The jobs that run here now."""
        return tuple(self._working)

    @operation
    async def all(self) -> list[StoredPlan]:
        """All plans as they are now, also those of ended jobs that are still shown.

        Requests at the same time share one read, of the changes only.
        """
        asked_at = asyncio.get_running_loop().time()
        async with self._reading:
            if self._read_from < asked_at:
                await self._read()
        self._ended = {key: stored for key, stored in self._ended.items() if not is_over(stored)}
        plans = [*self.unfinished(), *self._ended.values()]
        return [*plans, *(each.previous for each in plans if each.previous is not None)]

    def has_room(self, receiver: str) -> bool:
        """False if the receiver's tenant has too many unfinished replays, and none is this receiver's."""
        tenant = tenant_of(receiver)
        theirs = sum(kind == "replay" and owner.startswith(f"{tenant}.") for kind, owner in self._known)
        return theirs < UNFINISHED_MAX or ("replay", receiver) in self._known

    def halt(self) -> None:
        """Release each job as soon as none of its copies is in flight."""
        self._halted = True

    async def stop(self) -> None:
        """Return when this process works on no job."""
        self.halt()
        tasks = [*self._working.values(), *([self._running] if self._running else [])]
        if self._running is not None:
            self._running.cancel()
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
                async with self._reading:
                    await self._read()
            except Unavailable as error:
                log.debug("job.unread", extra={"why": str(error)})
            except AngariumError as error:
                self._unread(why=str(error))
            self._take_up()
            try:
                async with asyncio.timeout(READ_PLANS_EVERY_S):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _read(self) -> None:
        """Read the plans that have changed; `_reading` is held. Raises Unavailable."""
        began_at = asyncio.get_running_loop().time()
        for kind, place in self._places.items():
            await place.check_created()
            if not await place.compare():
                self._known = {key: known for key, known in self._known.items() if key[0] != kind}
                self._ended = {key: stored for key, stored in self._ended.items() if key[0] != kind}
            while (message := await next_plan(self._access, kind, place.position)) is not None:
                if place.is_doubtful:
                    break  # The next read compares first.
                place.move(Mark(position=message.position, stored_at=message.stored_at))
                try:
                    self._update(plan_in(self._access, message))
                except Unusable as error:
                    log.warning("job.unreadable", extra={"why": str(error)})
        self._read_from = began_at

    def _update(self, stored: StoredPlan) -> None:
        key, now = (stored.kind, stored.owner), asyncio.get_running_loop().time()
        self._ended.pop(key, None)
        if stored.api_job is None or not stored.plan.unfinished:
            self._known.pop(key, None)
            self._ended[key] = stored
        elif (known := self._known.get(key)) is None:
            self._known[key] = _KnownJob(stored, now, now)
        else:
            known.stored, known.seen_at = stored, now

    def _take_up(self) -> None:
        """Give slots to the waiting jobs whose turn it is, and begin them."""
        now, waiting = asyncio.get_running_loop().time(), []
        for key, known in self._known.items():
            # One that is held may be taken only if its holder is silent for a lease.
            free = not known.stored.plan.held or now - known.seen_at > plan_lock.LOCK_LEASE_S * LEASES_WAITED
            due = now >= known.not_before and not known.stored.wait_s(SystemTime().wall())
            if not self._halted and key not in self._slots and free and due:
                waiting.append(WaitingJob(key, known.stored.tenant, known.waits_since))
        for key in self._slots.fill(waiting, now):
            self._working[key] = asyncio.create_task(self._work(key, self._known[key]))

    async def _work(self, key: JobKey, known: _KnownJob) -> None:
        loop = asyncio.get_running_loop()
        known.not_before = loop.time() + RETRY_AFTER_S
        why = ""
        try:
            why = await run_job(
                self._access, *key, lambda: self._halted or self._slots.is_over(key), self.redrives_here
            )
        except LockHeld:
            log.debug("job.taken", extra={"job": known.stored.id})
        except AngariumError as error:
            why = str(error)
        finally:
            known.waits_since = loop.time()
            self._slots.leave(key, known.waits_since)
            del self._working[key]
            self.wake()
        if why in ("", HALTED):
            known.not_before = 0.0
        elif not self._halted:
            log.warning("job.waits", extra={"job": known.stored.id, "why": why})
            known.not_before = loop.time() + RETRY_AFTER_S
