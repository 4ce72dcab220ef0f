"""Runs jobs, each in the process that holds its plan.

If a process dies, its plan remains held. Once the plan has not changed for a lease, another process takes it
up and continues where the first one stopped, like a resumed command. Between two copies, or pages of letters,
a job checks whether it is `halted`, because its process stops or its turn is over. Then it releases the plan,
so another process need not wait for a lease.
"""

import asyncio
import socket
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec.structs import replace

from actors.errors import Unusable
from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.operations.jobs.plans import JobKind
from streams.clock import SystemTime
from streams.dead_letters.letters import DeadLetters, LetterFilter, LetterPage
from streams.nats.errors import NotPermitted
from streams.resending import plan_lock
from streams.resending.plan_lock import LockHeld, PlanLock
from streams.resending.redrive import Redrive
from streams.resending.redrive_job import RedriveJobLock, RedriveJobPlan
from streams.resending.redrive_lock import RedriveLock
from streams.resending.replay import HALTED, NOT_DUE, ReceiverRemoved, Replay
from streams.resending.replay_lock import ReplayLock, ReplayPlan
from streams.tasks import cancel_and_wait

PAGE_PAUSE_S = 0.25
"""Time between two pages of letters, in which another redrive gets its turn."""
COPY_PATIENCE_S = 5.0
"""Time that a replay waits for its next copy; one with a slower rate is released until that is due."""
HALT_CHECK_EVERY_S = 0.25
"""Time between two checks whether the process is halted, while it waits for other redrives."""

T = TypeVar("T")
P = TypeVar("P", ReplayPlan, RedriveJobPlan)


async def run_job(
    access: Access, kind: JobKind, owner: str, is_halted: Callable[[], bool], redrives_here: asyncio.Lock
) -> str:
    """Take up a job, and continue until it has ended, or `is_halted`, or it cannot continue now: returns why.

    `redrives_here` lets the redrives of a process wait for each other. Raises `LockHeld` if another process
    has the job, and Unavailable if NATS is away for long.
    """
    run, time = uuid.uuid4().hex, SystemTime()
    if kind == "replay":
        replay_lock = ReplayLock(
            access.js, access.names, owner, run, time, lease_s=plan_lock.LOCK_LEASE_S, by=_process()
        )
        return await _under_lock(
            replay_lock,
            lambda: _replay(access, owner, replay_lock, is_halted),
            lambda: _count_sent(access, owner, replay_lock),
        )
    job_lock = RedriveJobLock(
        access.js, access.names, owner, run, time, lease_s=plan_lock.LOCK_LEASE_S, by=_process()
    )
    return await _under_lock(
        job_lock,
        lambda: _redrive(access, job_lock, is_halted, redrives_here),
        lambda: _count_page(access, job_lock),
    )


def _process() -> str:
    """Name this process to operators."""
    return f"a process of the HTTP API on {socket.gethostname()}"


async def _under_lock(
    lock: PlanLock[P], work: Callable[[], Awaitable[str]], count: Callable[[], Awaitable[None]]
) -> str:
    """Do the rest of the work under the lock, if there is any, and store the result.

    `count` updates the plan of a job that should stop: its last holder may have sent more than the
    plan says.
    """
    before = await lock.read()
    if before is None or before.api_job is None or not before.unfinished:
        return ""
    await lock.acquire()
    try:
        if not lock.plan.unfinished or lock.plan.api_job is None:
            await lock.store(held=False, unfinished=False)
            return ""
        if lock.plan.api_job.stop:
            await _stop(lock, count)
            return ""
        why = await work()
        # After a turn it waits for a slot, like all that nothing else keeps waiting.
        await _store(lock, why="" if why == HALTED else why, held=False)
        if why.startswith(NOT_DUE):
            return ""  # It is released as it should be.
    except LockHeld:
        stored = await lock.read()
        if (
            stored is None or stored.run != lock.plan.run
            or stored.api_job is None or not stored.api_job.stop
        ):  # fmt: skip
            raise
        # The plan is ours, but a client's request to stop has changed it.
        lock.plan = stored
        await _stop(lock, count)
        return ""
    except ReceiverRemoved as error:
        await count()
        await _store(lock, why=str(error), failed=True, held=False, unfinished=False)
        return ""
    except (NotPermitted, Unusable) as error:
        await _store(lock, why=str(error), failed=True, held=False, unfinished=False)
        return ""
    return why


async def _store(lock: PlanLock[P], *, why: str, failed: bool = False, **changes: Any) -> None:
    job = lock.plan.api_job
    await lock.store(**changes, api_job=job and replace(job, why=why, failed=failed))


async def _stop(lock: PlanLock[P], count: Callable[[], Awaitable[None]]) -> None:
    """End the job, with the events counted that were sent."""
    await count()
    await lock.store(held=False, unfinished=False)


async def _replay(access: Access, receiver: str, lock: ReplayLock, is_halted: Callable[[], bool]) -> str:
    work = Replay(
        access.js,
        access.names,
        receiver,
        lock,
        lock.plan.pace_s,
        halted=is_halted,
        patience_s=COPY_PATIENCE_S,
    )
    await work.resume()
    await work.send_rest(lambda *_: None)
    if work.done.stopped == NOT_DUE:
        return f"{NOT_DUE}: it is at {instant_text(lock.plan.due_at)}"
    return work.done.stopped


async def _count_sent(access: Access, receiver: str, lock: ReplayLock) -> None:
    await Replay(access.js, access.names, receiver, lock, lock.plan.pace_s).resume()


# ---- redrives


async def _count_page(access: Access, lock: RedriveJobLock) -> None:
    """Store how many letters of the last page are gone because they were sent."""
    page = lock.plan.page
    there = await DeadLetters(access.js, access.names).letters(page)
    await lock.store(sent=lock.plan.sent + len(page) - len(there), page=())


async def _redrive(
    access: Access, lock: RedriveJobLock, is_halted: Callable[[], bool], redrives_here: asyncio.Lock
) -> str:
    while not is_halted():
        async with _turn(lock, redrives_here, is_halted) as its_turn:
            redrive_lock = await _redrive_lock(access, lock, is_halted) if its_turn else None
            why = HALTED if redrive_lock is None else await _send_page(access, lock, redrive_lock)
        if why or not lock.plan.unfinished:
            return why
        await asyncio.sleep(PAGE_PAUSE_S)
    return HALTED


@asynccontextmanager
async def _turn(
    lock: RedriveJobLock, redrives_here: asyncio.Lock, is_halted: Callable[[], bool]
) -> AsyncIterator[bool]:
    """The turn among the redrives of this process; False if it is halted before."""
    acquiring = asyncio.ensure_future(redrives_here.acquire())
    try:
        yield await _while_renewed(lock, _unless_halted(acquiring, is_halted))
    finally:
        await cancel_and_wait(acquiring)
        if not acquiring.cancelled():
            redrives_here.release()


async def _redrive_lock(
    access: Access, lock: RedriveJobLock, is_halted: Callable[[], bool]
) -> RedriveLock | None:
    """The lock of all redrives, as soon as no other one has it; None if the process is halted."""
    while not is_halted():
        redrive_lock = RedriveLock(
            access.js,
            access.names,
            uuid.uuid4().hex,
            SystemTime(),
            lease_s=plan_lock.LOCK_LEASE_S,
            by=_process(),
        )
        try:
            if await _while_renewed(lock, _unless_halted(redrive_lock.acquire(), is_halted)):
                return redrive_lock
        except LockHeld as error:
            # This also raises LockHeld if another process has taken the job.
            await _store(lock, why=str(error))
    return None


async def _send_page(access: Access, lock: RedriveJobLock, redrive_lock: RedriveLock) -> str:
    """Send the next letters, under the lock of all redrives; returns why not all of them could go."""
    work, letters, plan = (
        Redrive(access.js, access.names, redrive_lock, receivers_end=lock.plan.receivers_end),
        DeadLetters(access.js, access.names),
        lock.plan,
    )
    begun = False
    try:
        await _while_renewed(lock, work.begin())
        begun = True
        there = await _while_renewed(lock, letters.letters(plan.page))
        sent = plan.sent + len(plan.page) - len(there)
        page = await _while_renewed(lock, _next_page(letters, plan))
        await lock.store(sent=sent, page=tuple(each.position for each in page.letters))
    except LockHeld:
        # No copy is in flight, so other redrives need not wait for a lease.
        await (work.end() if begun else redrive_lock.store(held=False))
        raise
    await _while_renewed(lock, work.send(page.letters))
    await work.end()
    if work.done.stopped:
        await lock.store(sent=sent + work.done.redriven, page=())
        return work.done.stopped
    assert plan.api_job is not None, "it is a job"
    left_out = Counter(plan.api_job.left_out)
    left_out.update({why: len(each) for why, each in work.done.left_out.items()})
    seen = plan.seen + page.seen
    changes = {
        "sent": sent + work.done.redriven, "page": (), "done_to": page.up_to, "seen": seen,
        "unfinished": page.unseen > 0,
        "api_job": replace(plan.api_job, total=seen + page.unseen, left_out=dict(left_out), why=""),
    }  # fmt: skip
    if page.unseen:
        await lock.store(**changes)
    else:
        lock.change(**changes)  # It is stored when the plan is released: the job ends once.
    return ""


async def _next_page(letters: DeadLetters, plan: RedriveJobPlan) -> LetterPage:
    """The next letters that are wanted; none if there are no more."""
    selection = LetterFilter(
        receivers=plan.receivers, reasons=frozenset(plan.reasons), since=plan.since, until=plan.until
    )
    seen = 0
    async for page in letters.pages(selection, plan.end, plan.done_to):
        seen += page.seen
        if page.letters:
            unseen = 0 if selection.is_past(page.letters[-1]) else page.unseen
            return LetterPage(page.letters, seen, unseen, page.up_to)
    return LetterPage([], seen, 0, plan.end)


async def _while_renewed(lock: PlanLock[P], work: Awaitable[T]) -> T:
    """Wait for the work, and renew the lock meanwhile: a holder that is silent for a lease counts as dead."""
    async with _running_task(work) as task:
        while not task.done():
            await asyncio.wait({task}, timeout=plan_lock.LOCK_LEASE_S / 4)
            await lock.ensure_held(plan_lock.LOCK_LEASE_S / 2)
        return task.result()


async def _unless_halted(work: Awaitable[object], is_halted: Callable[[], bool]) -> bool:
    """Wait for the work; returns False, with the work given up, if the process is halted before its end."""
    async with _running_task(work) as task:
        while not task.done() and not is_halted():
            await asyncio.wait({task}, timeout=HALT_CHECK_EVERY_S)
        if task.done():
            task.result()
        return task.done()


@asynccontextmanager
async def _running_task(work: Awaitable[T]) -> AsyncIterator[asyncio.Future[T]]:
    """The work as a task, which is cancelled if the block ends before it."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        await cancel_and_wait(task)
