"""The plans of jobs: their keys, and the part of them that clients see."""

import re
from typing import Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from actors.ids import tenant_of
from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.operations.failures import OperationError
from streams.clock import SystemTime
from streams.nats.answers import StoredMessage
from streams.nats.retry import retry_for_command
from streams.resending import ended_replays, plan_lock, redrive_job, replay_lock
from streams.resending.job import Job
from streams.resending.plan_lock import LEASES_WAITED
from streams.resending.redrive_job import RedriveJobPlan
from streams.resending.replay_lock import ReplayPlan
from streams.versions import read_versioned

CUT_OFF = "its command was cut off or has stopped; an operator has to resume it or give it up"
"""The reason why the replay of a command does not continue."""

JobKind = Literal["replay", "redrive"]
JobState = Literal["running", "waiting", "stopping", "done", "stopped", "failed"]
JobOrigin = Literal["http", "command line"]
JobPlan = ReplayPlan | RedriveJobPlan

_ID = re.compile(r"(replay|redrive)\.([A-Za-z0-9_.-]{1,130})\.([0-9a-f]{16})\Z")
_replay = msgspec.json.Decoder(ReplayPlan)
_redrive = msgspec.json.Decoder(RedriveJobPlan)


class JobDocument(Struct, frozen=True, kw_only=True):
    """A job. `looked_at` of `total` messages are dealt with, `sent` of them were sent again.

    `left_out` counts those that were not sent, by reason. `kept_since`: earlier events were wanted, but are
    no longer kept; `purged`: some wanted events were purged meanwhile. `again` is the value of
    `angarium-again` of a replay. `why` says what a job waits for, or why it has failed. `origin`: where it
    was begun, `by`: who began it. The command line runs its own replays. Instants are RFC 3339.
    """

    id: str
    kind: JobKind
    tenant: str
    receiver: str | None
    origin: JobOrigin
    by: str | None
    state: JobState
    began_at: str
    ended_at: str | None
    looked_at: int
    total: int
    sent: int
    left_out: dict[str, int] = field(name="left")
    kept_since: str | None
    purged: bool
    again: str | None = field(name="mark")
    why: str | None


class StoredPlan(Struct, frozen=True):
    """A plan as it is stored in the bucket: `owner` is the receiver or tenant whose key it is."""

    kind: JobKind
    owner: str
    plan: JobPlan
    revision: int
    stored_at: float

    @property
    def tenant(self) -> str:
        return tenant_of(self.owner)

    @property
    def api_job(self) -> Job | None:
        """The job that processes of the API run."""
        return self.plan.api_job

    @property
    def command_job(self) -> Job | None:
        """The job that a command runs itself; no process of the API takes it up."""
        return self.plan.command_job if isinstance(self.plan, ReplayPlan) else None

    @property
    def job(self) -> Job | None:
        """The job, of the API or of a command; None if an older Angarium stored the plan of a command."""
        return self.api_job or self.command_job

    @property
    def previous(self) -> "StoredPlan | None":
        """The job that ended before a command took its place, as its plan was."""
        if not isinstance(self.plan, ReplayPlan) or (ended := self.plan.previous) is None:
            return None
        plan = replace(
            self.plan, api_job=ended.job, command_job=None, previous=None, unfinished=False, held=False,
            remaining=ended.remaining, sent=ended.sent, again=ended.again,
        )  # fmt: skip
        return StoredPlan(self.kind, self.owner, plan, self.revision, ended.ended_at)

    def wait_s(self, now: float) -> float:
        """The time until its next copy is due, at most that between two copies: clocks may be wrong."""
        if not isinstance(self.plan, ReplayPlan):
            return 0.0
        return max(0.0, min(self.plan.due_at - now, self.plan.pace_s))

    @property
    def id(self) -> str:
        """The id of its job, as clients know it; empty if it has none."""
        return "" if self.job is None else f"{self.kind}.{self.owner}.{self.job.id}"


def kind_and_owner(job: str) -> tuple[JobKind, str] | None:
    """The kind of a job, and whose it is, by its id; None if that is no id."""
    found = _ID.match(job)
    if found is None:
        return None
    kind: JobKind = "replay" if found[1] == "replay" else "redrive"
    parts = found[2].split(".")
    return (kind, found[2]) if len(parts) == (2 if kind == "replay" else 1) and all(parts) else None


def plan_key(access: Access, kind: JobKind, owner: str) -> str:
    """The subject of its plan."""
    return (
        access.names.actor_keys.replay(owner)
        if kind == "replay"
        else access.names.actor_keys.redrive_job(owner)
    )


async def plan_of(access: Access, kind: JobKind, owner: str) -> StoredPlan | None:
    """The plan of a receiver's replays, or of a tenant's redrives. Raises Unavailable and Unusable."""
    message = await retry_for_command(
        access.js.last_message, access.names.actors, plan_key(access, kind, owner)
    )
    return None if message is None else plan_in(access, message)


async def next_plan(access: Access, kind: JobKind, after: int) -> StoredMessage | None:
    """The next plan of that kind after a position of the bucket. Raises Unavailable."""
    every = (
        access.names.actor_keys.replay("*") if kind == "replay" else access.names.actor_keys.redrive_job("*")
    )
    return await access.js.next_message(access.names.actors, every, after + 1)


def tenant_of_plan(access: Access, key: str) -> str:
    """The tenant of the plan that has that key."""
    keys = access.names.actor_keys
    receiver = keys.receiver_of_replay(key)
    return keys.tenant_of_redrive_job(key) if receiver is None else tenant_of(receiver)


def plan_in(access: Access, message: StoredMessage) -> StoredPlan:
    """The plan in a message. Raises Unusable."""
    where, keys = message.subject, access.names.actor_keys
    if (receiver := keys.receiver_of_replay(where)) is not None:
        plan: JobPlan = read_versioned(_replay, message.data, replay_lock.VERSION, where)
        return StoredPlan("replay", receiver, plan, message.position, message.stored_at)
    plan = read_versioned(_redrive, message.data, redrive_job.VERSION, where)
    owner = keys.tenant_of_redrive_job(where)
    return StoredPlan("redrive", owner, plan, message.position, message.stored_at)


async def plan_of_job(access: Access, job: str) -> StoredPlan:
    """The plan of a job. Raises `OperationError` if there is none, or it ended long ago."""
    found = kind_and_owner(job)
    stored = None if found is None else await plan_of(access, *found)
    if stored is not None and stored.id != job:
        stored = stored.previous
    if stored is None or stored.id != job or is_over(stored):
        raise OperationError("not_found", f"there is no job {job}", remedy="; angarium job list shows all")
    return stored


def is_over(stored: StoredPlan) -> bool:
    """True if it ended so long ago that it is no longer shown."""
    return not stored.plan.unfinished and SystemTime().wall() - stored.stored_at > ended_replays.SHOWN_FOR_S


def job_document(stored: StoredPlan, slot: str = "") -> JobDocument:
    """The public state of a job; `slot` says why it has none, if it waits for one."""
    plan, job = stored.plan, stored.job
    assert job is not None, "only jobs have a document"
    state = state_of(stored, job)
    why = slot or job.why
    if stored.command_job is not None and state == "waiting":
        why = CUT_OFF
    if isinstance(plan, ReplayPlan):
        looked_at, receiver, again = job.total - plan.remaining, _one(stored.owner), plan.again
    else:
        looked_at, receiver, again = plan.seen, _one(plan.receivers), ""
    return JobDocument(
        id=stored.id, kind=stored.kind, tenant=stored.tenant, receiver=receiver, state=state,
        origin="http" if stored.command_job is None else "command line", by=job.by or None,
        began_at=instant_text(job.began_at),
        ended_at=None if plan.unfinished else instant_text(stored.stored_at),
        looked_at=max(0, looked_at), total=job.total, sent=plan.sent, left_out=job.left_out,
        kept_since=None if job.kept_since is None else instant_text(job.kept_since), purged=job.purged,
        again=again or None, why=why or None,
    )  # fmt: skip


def _one(receivers: str) -> str | None:
    return None if receivers.endswith(".*") else receivers


def state_of(stored: StoredPlan, job: Job) -> JobState:
    """The state, by the clock of this process: if a lock is not renewed for a lease, its holder is dead."""
    if not stored.plan.unfinished:
        return "failed" if job.failed else "stopped" if job.stop else "done"
    if job.stop:
        return "stopping"
    moving = (
        stored.plan.held and SystemTime().wall() - stored.stored_at < plan_lock.LOCK_LEASE_S * LEASES_WAITED
    )
    return "running" if moving else "waiting"
