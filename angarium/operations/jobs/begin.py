"""Begins jobs: stores their plans, and leaves the work to the process that takes them up."""

import hashlib
import secrets
import uuid

from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.failures import OperationError, operation
from angarium.operations.jobs import plans
from angarium.operations.jobs.plans import JobDocument, JobKind, document, row_of
from angarium.operations.replay import ReplayRange, choose
from streams.clock import SystemTime
from streams.dead_letters.letters import DeadLetters, Selection
from streams.resending.job import Job
from streams.resending.redrive_job import RedriveJobLock
from streams.resending.replay import Replay, ReplayLock


class Begun(Struct, frozen=True):
    """The job of a request; if not `mine`, it is another one of that receiver or tenant, and unfinished."""

    job: JobDocument
    mine: bool = True


@operation
async def begin_replay(
    to: Access, receiver: str, wanted: ReplayRange, per_second: float, key: str = ""
) -> Begun:
    """Begin a replay, or find the one that was begun under the same `key`.

    Fails as not_found and invalid, and as a conflict where a command works for that receiver.
    """
    chosen = await choose(to, receiver, wanted)
    number = _number("replay", receiver, key)
    if (other := await _other(to, "replay", receiver, number)) is not None:
        return other
    time = SystemTime()
    lock = ReplayLock(to.js, to.names, receiver, uuid.uuid4().hex, time, lease_s=plans.LEASE_S)
    await lock.acquire()
    if not lock.plan.unfinished:
        work = Replay(to.js, to.names, receiver, lock, 1 / per_second)
        mark, nonce = f"replay-{secrets.token_hex(6)}", secrets.token_hex(16)
        job = Job(id=number, began_at=time.wall(), per_second=per_second, kept_since=chosen.kept_since)
        await work.begin(chosen.choice, mark, nonce, job)
    await lock.store(held=False)
    return await _begun(to, "replay", receiver, number)


@operation
async def begin_redrive(to: Access, tenant: str, wanted: Selection, key: str = "") -> Begun:
    """Begin to send all letters of that selection, or find the job that was begun under the same `key`."""
    number = _number("redrive", tenant, key)
    if (other := await _other(to, "redrive", tenant, number)) is not None:
        return other
    time = SystemTime()
    lock = RedriveJobLock(to.js, to.names, tenant, uuid.uuid4().hex, time, lease_s=plans.LEASE_S)
    await lock.acquire()
    changes: dict[str, object] = {}
    if not lock.plan.unfinished:
        changes = {
            "unfinished": True, "job": Job(id=number, began_at=time.wall()), "receivers": wanted.receivers,
            "reasons": tuple(sorted(wanted.reasons)), "since": wanted.since, "until": wanted.until,
            "cursor": 0, "end": await DeadLetters(to.js, to.names).end(), "seen": 0, "page": (), "sent": 0,
        }  # fmt: skip
    await lock.store(**changes, held=False)
    return await _begun(to, "redrive", tenant, number)


@operation
async def same_job(to: Access, kind: JobKind, of: str, key: str) -> Begun | None:
    """The job that was begun under that key, if it is still known."""
    row = await row_of(to, kind, of)
    if row is None or row.job is None or row.job.id != _number(kind, of, key):
        return None
    return Begun(document(row))


def _number(kind: JobKind, of: str, key: str) -> str:
    """The number of a new job; under the same key it is the same."""
    if not key:
        return secrets.token_hex(8)
    return hashlib.sha256(f"{kind}:{of}:{key}".encode()).hexdigest()[:16]


async def _other(to: Access, kind: JobKind, of: str, number: str) -> Begun | None:
    """The job that is in the place of a new one."""
    row = await row_of(to, kind, of)
    if row is None:
        return None
    if row.job is not None and (row.plan.unfinished or row.job.id == number):
        return Begun(document(row), mine=row.job.id == number)
    if row.plan.unfinished:
        raise OperationError(
            "conflict",
            f"a {kind} for {of}, started from the command line, is unfinished; "
            "an operator has to resume or abandon it",
        )
    return None


async def _begun(to: Access, kind: JobKind, of: str, number: str) -> Begun:
    begun = await _other(to, kind, of, number)
    if begun is None:
        raise OperationError(
            "conflict", f"another {kind} for {of} began at the same moment; look, and send it again"
        )
    return begun
