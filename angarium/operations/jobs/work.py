"""Works off jobs, each by the process that holds its plan.

A process that dies leaves its plan held; it is taken up when it has not changed for a lease, and goes on by
what the plan says, as a command that is resumed does. Between two copies, or pages of letters, it looks
whether its process is `halted`: then it releases the plan, so that another process need not wait for a lease.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from actors.errors import Unusable
from angarium.connecting import Access
from angarium.operations.jobs import plans
from angarium.operations.jobs.plans import JobKind
from streams.clock import SystemTime
from streams.dead_letters.letters import DeadLetters, LetterPage, Selection
from streams.nats.errors import NotPermitted
from streams.resending.plan_lock import Busy, PlanLock
from streams.resending.redrive import Redrive
from streams.resending.redrive_job import RedriveJobLock, RedriveJobPlan
from streams.resending.redrive_lock import RedriveLock
from streams.resending.replay import HALTED, Replay, ReplayLock, ReplayPlan

PAGE_PAUSE_S = 0.25
"""Time between two pages of letters, in which another redrive gets its turn."""

T = TypeVar("T")
P = TypeVar("P", ReplayPlan, RedriveJobPlan)


async def work_off(
    to: Access, kind: JobKind, owner: str, halted: Callable[[], bool], redrives_here: asyncio.Lock
) -> str:
    """Take up a job, and go on until it has ended, or `halted`, or it cannot go on now: returns why.

    `redrives_here` lets the redrives of a process wait for each other. Raises `Busy` if another process has
    the job, and Unavailable if NATS is away for long.
    """
    run, time = uuid.uuid4().hex, SystemTime()
    if kind == "replay":
        replays = ReplayLock(to.js, to.names, owner, run, time, lease_s=plans.LEASE_S)
        return await _held(replays, lambda: _replay(to, owner, replays, halted))
    redrives = RedriveJobLock(to.js, to.names, owner, run, time, lease_s=plans.LEASE_S)
    return await _held(redrives, lambda: _redrive(to, redrives, halted, redrives_here))


async def _held(lock: PlanLock[P], work: Callable[[], Awaitable[str]]) -> str:
    """Do the work under the lock, if there is any left, and store what has become of it."""
    before = await lock.read()
    if before is None or before.job is None or not before.unfinished:
        return ""
    await lock.acquire()
    try:
        if not lock.plan.unfinished or lock.plan.job is None or lock.plan.job.stop:
            await lock.store(held=False, unfinished=False)
            return ""
        why = await work()
        await _store(lock, why=why, held=False)
    except Busy:
        if not await _is_stopped(lock):
            raise
        return ""
    except (NotPermitted, Unusable) as error:
        await _store(lock, why=str(error), failed=True, held=False, unfinished=False)
        return ""
    return why


async def _store(lock: PlanLock[P], *, why: str, failed: bool = False, **changes: Any) -> None:
    job = lock.plan.job
    await lock.store(**changes, job=job and replace(job, why=why, failed=failed))


async def _is_stopped(lock: PlanLock[P]) -> bool:
    """End the job, if the plan is ours but for a client's request to stop it."""
    now = await lock.read()
    if now is None or now.run != lock.plan.run or now.job is None or not now.job.stop:
        return False
    lock.plan = now
    await lock.store(held=False, unfinished=False)
    return True


async def _replay(to: Access, receiver: str, lock: ReplayLock, halted: Callable[[], bool]) -> str:
    work = Replay(to.js, to.names, receiver, lock, lock.plan.pace_s, halted=halted)
    await work.resume()
    await work.go_on(lambda *_: None)
    return work.done.stopped


# ---- redrives


async def _redrive(
    to: Access, lock: RedriveJobLock, halted: Callable[[], bool], redrives_here: asyncio.Lock
) -> str:
    while not halted():
        await _while_renewed(lock, redrives_here.acquire())
        try:
            command = await _redrive_lock(to, lock, halted)
            why = HALTED if command is None else await _send_page(to, lock, command)
        finally:
            redrives_here.release()
        if why or not lock.plan.unfinished:
            return why
        await asyncio.sleep(PAGE_PAUSE_S)
    return HALTED


async def _redrive_lock(to: Access, lock: RedriveJobLock, halted: Callable[[], bool]) -> RedriveLock | None:
    """The lock of all redrives, as soon as no other one has it; None if the process is halted."""
    while not halted():
        redrive_lock = RedriveLock(to.js, to.names, uuid.uuid4().hex, SystemTime(), lease_s=plans.LEASE_S)
        try:
            await _while_renewed(lock, redrive_lock.acquire())
        except Busy as error:
            # Where the job itself is another process's by now, this raises Busy, too.
            await _store(lock, why=str(error))
        else:
            return redrive_lock
    return None


async def _send_page(to: Access, lock: RedriveJobLock, redrive_lock: RedriveLock) -> str:
    """Send the next letters, under the lock of all redrives; returns why not all of them could go."""
    work, letters, plan = Redrive(to.js, to.names, redrive_lock), DeadLetters(to.js, to.names), lock.plan
    await _while_renewed(lock, work.begin())
    there = await _while_renewed(lock, letters.letters(plan.page))
    sent = plan.sent + len(plan.page) - len(there)
    page = await _while_renewed(lock, _next_page(letters, plan))
    try:
        await lock.store(sent=sent, page=tuple(each.position for each in page.letters))
    except Busy:
        await work.end()
        raise
    await _while_renewed(lock, work.send(page.letters))
    await work.end()
    if work.done.stopped:
        await lock.store(sent=sent + work.done.redriven, page=())
        return work.done.stopped
    assert plan.job is not None, "it is a job"
    left = Counter(plan.job.left) + Counter({why: len(each) for why, each in work.done.left.items()})
    seen = plan.seen + page.seen
    await lock.store(
        sent=sent + work.done.redriven, page=(), cursor=page.up_to, seen=seen, unfinished=page.unseen > 0,
        job=replace(plan.job, total=seen + page.unseen, left=dict(left), why=""),
    )  # fmt: skip
    return ""


async def _next_page(letters: DeadLetters, plan: RedriveJobPlan) -> LetterPage:
    """The next letters that are wanted; none if there are no more."""
    selection = Selection(
        receivers=plan.receivers, reasons=frozenset(plan.reasons), since=plan.since, until=plan.until
    )
    seen = 0
    async for page in letters.pages(selection, plan.end, plan.cursor):
        seen += page.seen
        if page.letters:
            unseen = 0 if selection.is_past(page.letters[-1]) else page.unseen
            return LetterPage(page.letters, seen, unseen, page.up_to)
    return LetterPage([], seen, 0, plan.end)


async def _while_renewed(lock: PlanLock[P], work: Awaitable[T]) -> T:
    """Wait for the work, and keep the lock meanwhile: a holder that is silent for a lease counts as dead."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=plans.LEASE_S / 4)
            await lock.ensure_held(plans.LEASE_S / 2)
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
