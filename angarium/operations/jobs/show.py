"""Shows a job."""

from collections.abc import Iterable

from angarium.access import Access
from angarium.operations.failures import operation
from angarium.operations.jobs.plans import JobDocument, StoredPlan, job_document, plan_of_job
from angarium.operations.jobs.waiting import all_plans, running_jobs, waits_for_slot, why_no_slot


@operation
async def show(access: Access, job: str, plans: Iterable[StoredPlan] | None = None) -> JobDocument:
    """Show how far a job has come, and why it waits. Fails as not_found.

    `plans`: those of all unfinished jobs, of a process that knows them anyway.
    """
    stored = await plan_of_job(access, job)
    if not waits_for_slot(stored):
        return job_document(stored)
    if plans is None:
        plans, _ = await all_plans(access)
    return job_document(stored, why_no_slot(stored, running_jobs(plans)))
