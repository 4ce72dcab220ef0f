"""Starts jobs: stores their plans; a process of the API takes them up."""

import hashlib
import secrets
import uuid

from msgspec import Struct

from angarium.access import Access
from angarium.operations.failures import OperationError, operation
from angarium.operations.jobs.plans import JobDocument, JobKind, StoredPlan, job_document, plan_of
from angarium.operations.replays.resendable import ReplayFilter, find_resendable
from streams.buckets.stored_configurations import StoredConfigurations
from streams.clock import SystemTime
from streams.dead_letters.letters import DeadLetters, LetterFilter
from streams.nats.retry import retry_for_command
from streams.resending import plan_lock
from streams.resending.job import Job
from streams.resending.redrive_job import RedriveJobLock
from streams.resending.replay import Replay
from streams.resending.replay_lock import ReplayLock


class StartedJob(Struct, frozen=True):
    """The job of a request; if not `mine`, it is another one of that receiver or tenant, and unfinished."""

    job: JobDocument
    mine: bool = True


@operation
async def begin_replay(
    access: Access, receiver: str, wanted: ReplayFilter, per_second: float, key: str = ""
) -> StartedJob:
    """Begin a replay, or find the one that was begun under the same `key`.

    Fails as not_found and invalid, and as a conflict where a command works for that receiver.
    """
    found = await find_resendable(access, receiver, wanted)
    job_id = _job_id("replay", receiver, key)
    if (other := await _job_in_place(access, "replay", receiver, job_id)) is not None:
        return other
    time = SystemTime()
    lock = ReplayLock(
        access.js, access.names, receiver, uuid.uuid4().hex, time, lease_s=plan_lock.LOCK_LEASE_S
    )
    await lock.acquire()
    if not lock.plan.unfinished:
        work = Replay(access.js, access.names, receiver, lock, 1 / per_second)
        again, nonce = f"replay-{secrets.token_hex(6)}", secrets.token_hex(16)
        job = Job(
            id=job_id,
            began_at=time.wall(),
            kept_since=found.kept_since,
            left_out=found.left_out,
            by=access.by,
        )
        await work.begin(found.events, again, nonce, job)
    await lock.store(held=False)
    return await _stored_job(access, "replay", receiver, job_id)


@operation
async def begin_redrive(access: Access, tenant: str, wanted: LetterFilter, key: str = "") -> StartedJob:
    """Begin to send all letters of that selection, or find the job that was begun under the same `key`."""
    job_id = _job_id("redrive", tenant, key)
    if (other := await _job_in_place(access, "redrive", tenant, job_id)) is not None:
        return other
    time = SystemTime()
    lock = RedriveJobLock(
        access.js, access.names, tenant, uuid.uuid4().hex, time, lease_s=plan_lock.LOCK_LEASE_S
    )
    await lock.acquire()
    changes: dict[str, object] = {}
    if not lock.plan.unfinished:
        changes = {
            "unfinished": True, "api_job": Job(id=job_id, began_at=time.wall(), by=access.by),
            "receivers": wanted.receivers,
            "reasons": tuple(sorted(wanted.reasons)), "since": wanted.since, "until": wanted.until,
            "done_to": 0, "end": await DeadLetters(access.js, access.names).end(),
            "receivers_end": await retry_for_command(StoredConfigurations(access.js, access.names).end),
            "seen": 0, "page": (), "sent": 0,
        }  # fmt: skip
    await lock.store(**changes, held=False)
    return await _stored_job(access, "redrive", tenant, job_id)


@operation
async def job_under_key(access: Access, kind: JobKind, owner: str, key: str) -> StartedJob | None:
    """The job that was begun under that key, if it is still known."""
    stored = await plan_of(access, kind, owner)
    found = None if stored is None else _of_id(stored, _job_id(kind, owner, key))
    return None if found is None else StartedJob(job_document(found))


def _of_id(stored: StoredPlan, job_id: str) -> StoredPlan | None:
    """The job of that id, also if the replay of a command has taken its place."""
    known = (each for each in (stored, stored.previous) if each is not None)
    return next((each for each in known if each.api_job and each.api_job.id == job_id), None)


def _job_id(kind: JobKind, owner: str, key: str) -> str:
    """The id of a new job within its kind and owner; under the same key it is the same."""
    if not key:
        return secrets.token_hex(8)
    return hashlib.sha256(f"{kind}:{owner}:{key}".encode()).hexdigest()[:16]


async def _job_in_place(access: Access, kind: JobKind, owner: str, job_id: str) -> StartedJob | None:
    """The job that exists already, so that no new one is started."""
    stored = await plan_of(access, kind, owner)
    if stored is None:
        return None
    if (mine := _of_id(stored, job_id)) is not None:
        return StartedJob(job_document(mine))
    if stored.plan.unfinished and stored.job is not None:
        return StartedJob(job_document(stored), mine=False)
    if stored.plan.unfinished:
        raise OperationError(
            "conflict",
            f"a {kind} for {owner}, started from the command line, is unfinished; "
            "an operator has to resume or abandon it",
        )
    return None


async def _stored_job(access: Access, kind: JobKind, owner: str, job_id: str) -> StartedJob:
    begun = await _job_in_place(access, kind, owner, job_id)
    if begun is None:
        raise OperationError(
            "conflict",
            f"another {kind} for {owner} began at the same moment; check it, then send the request again",
        )
    return begun
