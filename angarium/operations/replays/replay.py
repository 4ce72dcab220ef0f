"""Replays: a command sends a receiver's events again, as far as the stream still has them.

Each is a new delivery, at a limited rate; events that are not settled yet are left out.
"""

import secrets
import uuid
from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from actors.ids import split_receiver
from angarium.access import Access
from angarium.operations.dead_letters.pages import Progress, no_progress
from angarium.operations.failures import OperationError, operation
from angarium.operations.replays.resendable import ReplayFilter, find_resendable
from angarium.quantities import count_text
from streams.clock import SystemTime
from streams.resending.job import Job
from streams.resending.replay import ReceiverRemoved, Replay, Replayed
from streams.resending.replay_lock import ReplayLock, ReplayPlan

PER_SECOND_DEFAULT = 100.0
"""Copies that a replay sends in a second by default."""


class ReplayReport(Struct, frozen=True, kw_only=True):
    """The result of a replay, as in `streams.resending.replay`; `again` is the value of `angarium-again`.

    `left_out` counts those that were wanted and not settled at the beginning (`not_settled_yet`).
    """

    receiver: str
    again: str = field(name="mark")
    sent: int
    finished: bool
    purged: bool
    too_large: list[int]
    taken: list[int]
    stopped: str | None
    kept_since: str | None
    left_out: dict[str, int] = field(name="left")


@operation
async def replay(
    access: Access,
    receiver: str,
    wanted: ReplayFilter | None,
    per_second: float | None = None,
    *,
    progress: Progress = no_progress,
    waiting: Callable[[float, float], None] = lambda began_at, wait_s: None,
    began: Callable[[Replayed], None] = lambda done: None,
) -> ReplayReport:
    """Send the events again at a limited rate; without `wanted`, finish an earlier replay.

    Without `per_second`, an earlier replay continues at its own rate.
    Fails as not_found, as invalid if an earlier replay has to be resumed first, as a conflict if another one
    for the receiver is under way, and as refused if the receiver is removed meanwhile. `waiting` is called if
    an earlier one was interrupted, `began` with the result, which changes as events are sent.
    """
    split_receiver(receiver)
    found = None if wanted is None else await find_resendable(access, receiver, wanted)
    lock = await _locked(access, receiver, waiting, resume=found is None)
    kept_pace_s = lock.plan.pace_s if found is None else 0.0
    pace_s = kept_pace_s or 1 / PER_SECOND_DEFAULT if per_second is None else 1 / per_second
    work = Replay(access.js, access.names, receiver, lock, pace_s)
    if found is None:
        await work.resume()
    else:
        job = Job(
            id=secrets.token_hex(8), began_at=lock.time.wall(), kept_since=found.kept_since,
            left_out=found.left_out, by=access.by,
        )  # fmt: skip
        again, nonce = f"replay-{secrets.token_hex(6)}", secrets.token_hex(16)
        await work.begin(found.events, again, nonce, command_job=job)
    began(work.done)
    try:
        with progress("replaying") as on_progress:
            await work.send_rest(on_progress)
    except ReceiverRemoved as error:
        raise await _ended(work, str(error)) from None
    done, finished = work.done, not work.done.stopped
    await work.leave(unfinished=not finished)
    return ReplayReport(
        receiver=receiver, again=lock.plan.again, sent=done.sent, finished=finished, purged=done.purged,
        too_large=done.too_large, taken=done.taken, stopped=done.stopped or None,
        kept_since=found.kept_since_text if found else None, left_out=found.left_out if found else {},
    )  # fmt: skip


async def _ended(work: Replay, why: str) -> OperationError:
    """End a replay that cannot continue, with all copies counted; returns the failure."""
    await work.resume()
    await work.leave(unfinished=False)
    sent = count_text(work.done.sent, "event")
    return OperationError("refused", f"{why}; the replay has ended, with {sent} sent")


@operation
async def give_up_replay(access: Access, receiver: str) -> int:
    """Give up an unfinished replay; returns how many events it sent."""
    split_receiver(receiver)
    lock = await _locked(access, receiver, lambda *_: None, resume=True)
    work = Replay(access.js, access.names, receiver, lock, lock.plan.pace_s)
    await work.resume()
    job = lock.plan.command_job
    lock.change(command_job=job and replace(job, stop=True))
    await work.leave(unfinished=False)
    return lock.plan.sent


async def _locked(
    access: Access, receiver: str, waiting: Callable[[float, float], None], *, resume: bool
) -> ReplayLock:
    """The lock; refuses to begin while a replay is unfinished, and to resume if none is."""
    lock = ReplayLock(access.js, access.names, receiver, uuid.uuid4().hex, SystemTime(), by=access.by)
    before = await lock.read()
    _check(receiver, before, resume=resume)
    await lock.acquire(lambda plan, wait_s: waiting(plan.at, wait_s))
    try:
        _check(receiver, lock.plan, resume=resume)
    except OperationError:
        await lock.store(held=False)
        raise
    return lock


def _check(receiver: str, plan: ReplayPlan | None, *, resume: bool) -> None:
    unfinished = plan is not None and plan.unfinished
    if plan is not None and plan.api_job is not None and unfinished:
        job = f"replay.{receiver}.{plan.api_job.id}"
        raise OperationError(
            "conflict",
            f"a replay for {receiver} that was begun over HTTP is not finished: {job}",
            remedy=f"; wait for its end (angarium job show {job}), or stop it (angarium job stop {job})",
        )
    if unfinished and not resume:
        raise OperationError(
            "invalid",
            f"a replay for {receiver} was cut off or stopped",
            remedy=f": continue with angarium replay {receiver} --resume, or give it up with --abandon",
        )
    if resume and not unfinished:
        raise OperationError(
            "invalid", f"no replay for {receiver} was cut off", remedy="; say --since to begin one"
        )
