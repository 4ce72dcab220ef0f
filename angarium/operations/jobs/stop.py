"""Stops a job."""

import msgspec
from msgspec.structs import replace

from angarium.access import Access
from angarium.operations.failures import OperationError, operation
from angarium.operations.jobs.plans import JobDocument, StoredPlan, job_document, plan_key, plan_of_job
from streams.journal.fence import Appended, append

TRIES_MAX = 20
"""A plan changes with each page that is sent, so the request to stop may have to be repeated."""


def _belongs_to_command(stored: StoredPlan) -> OperationError:
    by = f" by {stored.command_job.by}" if stored.command_job and stored.command_job.by else ""
    return OperationError(
        "refused",
        f"{stored.id} was begun on the command line{by}, where it has to be ended",
        remedy=f": press Ctrl-C there, then run angarium replay {stored.owner} --abandon",
    )


@operation
async def stop(access: Access, job: str) -> JobDocument:
    """Ask the process that runs the job to stop; without one the job ends at once.

    The holder's next plan is then refused, so it learns of the request and sends no more. Fails as
    not_found, and as refused if it is the replay of a command.
    """
    for _ in range(TRIES_MAX):
        stored = await plan_of_job(access, job)
        found = stored.api_job
        if not stored.plan.unfinished or (found is not None and found.stop):
            return job_document(stored)
        if found is None:
            raise _belongs_to_command(stored)
        plan = replace(stored.plan, unfinished=stored.plan.held, api_job=replace(found, stop=True, why=""))
        data = msgspec.json.encode(plan)
        key = plan_key(access, stored.kind, stored.owner)
        if isinstance(
            await append(access.js, access.names.actors, key, data, expected=stored.revision), Appended
        ):
            return job_document(await plan_of_job(access, job))
    raise OperationError("conflict", f"{job} keeps changing; try again")
