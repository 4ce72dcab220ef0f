"""Lists jobs and the replays of commands: the unfinished ones, and the last one of each owner."""

from collections.abc import Collection

from msgspec import Struct

from actors.ids import check_tenant
from angarium.access import Access
from angarium.operations.failures import operation
from angarium.operations.jobs.plans import JobDocument, StoredPlan, is_over, job_document, tenant_of_plan
from angarium.operations.jobs.waiting import all_plans, running_jobs, why_no_slot


class JobPageStart(Struct, frozen=True, order=True):
    """The place of a job in the list: when it began, in microseconds since the epoch, and its id."""

    began_us: int
    id: str


class JobPage(Struct, frozen=True):
    """Jobs, the newest first; `next` is the place of the last one if there are others.

    `unreadable`: why plans could not be read, for example because a newer version stored them.
    """

    jobs: list[JobDocument]
    next: JobPageStart | None
    unreadable: list[str]


@operation
async def list_jobs(
    access: Access,
    tenant: str | None,
    limit: int | None = None,
    after: JobPageStart | None = None,
    followed: Collection[StoredPlan] | None = None,
) -> JobPage:
    """The jobs of a tenant, or of all, the newest first: those after a place. Fails as invalid.

    `followed`: the plans of all jobs, of a process that knows them anyway.
    """
    if tenant is not None:
        check_tenant(tenant)
    plans, failures = await all_plans(access) if followed is None else (followed, [])
    found = {
        JobPageStart(round(stored.job.began_at * 1e6), stored.id): stored
        for stored in plans
        if tenant in (None, stored.tenant) and stored.job is not None and not is_over(stored)
    }
    places = sorted((each for each in found if after is None or each < after), reverse=True)
    page = places[:limit]
    following = page[-1] if len(places) > len(page) else None
    running = running_jobs(plans)
    jobs = [job_document(found[each], why_no_slot(found[each], running)) for each in page]
    unreadable = [why for key, why in failures if tenant in (None, tenant_of_plan(access, key))]
    return JobPage(jobs, following, unreadable)
