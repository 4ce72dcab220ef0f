"""Says why a job without a slot is waiting."""

from collections import Counter
from collections.abc import Iterable

from actors.errors import Unusable
from angarium.access import Access
from angarium.operations.jobs.job_slots import SLOT_TURN_S, SLOTS_MAX, TENANT_SLOTS_MAX
from angarium.operations.jobs.plans import StoredPlan, plan_in, state_of
from streams.clock import SystemTime
from streams.reading.newest import newest
from streams.resending.replay import NOT_DUE

NO_JOB_RUNS = "no job runs; a process of the HTTP API takes it up within seconds (start one: angarium api)"


async def all_plans(access: Access) -> tuple[list[StoredPlan], list[tuple[str, str]]]:
    """The plans of all jobs and commands, and of those that cannot be read the subject and why."""
    subjects = [access.names.actor_keys.replay("*"), access.names.actor_keys.redrive_job("*")]
    found = {each.subject: each async for each in newest(access.js, access.names.actors, subjects)}
    readable, unreadable = [], []
    for message in found.values():
        try:
            stored = plan_in(access, message)
            readable += [each for each in (stored, stored.previous) if each is not None]
        except Unusable as error:
            unreadable.append((message.subject, str(error)))
    return readable, unreadable


def waits_for_slot(stored: StoredPlan) -> bool:
    """True if nothing but a slot is missing, as far as its plan says."""
    if stored.api_job is None or state_of(stored, stored.api_job) != "waiting":
        return False
    other_reason = stored.api_job.why and not stored.api_job.why.startswith(NOT_DUE)
    return not other_reason and not stored.wait_s(SystemTime().wall())


def running_jobs(plans: Iterable[StoredPlan]) -> Counter[str]:
    """The number of running jobs of each tenant, counted once for a page: there may be 10,000 plans."""
    held = (each for each in plans if each.api_job and each.plan.unfinished and each.plan.held)
    return Counter(each.tenant for each in held if each.api_job and state_of(each, each.api_job) == "running")


def why_no_slot(stored: StoredPlan, running: Counter[str]) -> str:
    """Say why it has no slot, and what to do; empty if it does not wait for one."""
    if not waits_for_slot(stored):
        return ""
    if not running:
        return NO_JOB_RUNS
    jobs = "1 job runs" if running.total() == 1 else f"{running.total()} jobs run"
    return (
        f"waits for a slot: {jobs}, {running[stored.tenant]} of this tenant. A process of the HTTP API "
        f"has {SLOTS_MAX} slots, at most {TENANT_SLOTS_MAX} for a tenant, in turns of {SLOT_TURN_S:.0f} s: "
        "wait for its turn, stop another job of the tenant, or start another process (angarium api)"
    )
