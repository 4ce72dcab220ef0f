"""The plan of a redrive that is a job: the letters that a tenant wants, and how far the job has come.

It says whose job it is, and no more. `streams.resending.redrive` sends each letter once, under a lock that is
taken for each page, so the jobs of many tenants take turns.
"""

from msgspec import field

from streams.clock import Timekeeper
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.resending.job import Job
from streams.resending.plan_lock import LOCK_LEASE_S, HeldPlan, PlanLock

VERSION = 1


class RedriveJobPlan(HeldPlan, frozen=True, kw_only=True):
    """The plan of such a job.

    - `unfinished`: True until all letters were looked at, or it was stopped.
    - `receivers`, `reasons`, `since`, `until`: the letters that are wanted, as in a `LetterFilter`.
    - `done_to`: all letters up to here are dealt with, of those up to `end`.
    - `receivers_end`: the newest change to any receiver when it was requested; a receiver removed later gets
      no letters. None if an older Angarium stored it: then each page goes by its own beginning.
    - `seen`: the number of letters up to `done_to`.
    - `page`: letters after `done_to` that are being sent; those that no longer exist were sent.
    - `sent`: letters that were sent, without those of the page.
    """

    unfinished: bool = False
    api_job: Job | None = field(default=None, name="job")
    receivers: str = ""
    reasons: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    done_to: int = field(default=0, name="cursor")
    end: int = 0
    receivers_end: int | None = None
    seen: int = 0
    page: tuple[int, ...] = ()
    sent: int = 0


class RedriveJobLock(PlanLock[RedriveJobPlan]):
    """The lock of the redrive job of one tenant; `run` names the process that runs it."""

    def __init__(
        self, js: JetStream, names: Names, tenant: str, run: str, time: Timekeeper, *,
        lease_s: float = LOCK_LEASE_S, by: str = "",
    ) -> None:  # fmt: skip
        plan = RedriveJobPlan(v=VERSION, run=run, step=0, at=time.wall(), held=True, by=by)
        super().__init__(
            js, names.actors, names.actor_keys.redrive_job(tenant), plan, "redrive", time, lease_s
        )
