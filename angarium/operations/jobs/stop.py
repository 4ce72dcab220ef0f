"""Stops a job."""

import msgspec
from msgspec.structs import replace

from angarium.connecting import Access
from angarium.operations.failures import OperationError, operation
from angarium.operations.jobs.plans import JobDocument, document, key_of, plan_of_job
from streams.journal.fence import Appended, append

TRIES_MAX = 20
"""A plan changes with each page that is sent, so the request to stop may have to be repeated."""


@operation
async def stop(access: Access, job: str) -> JobDocument:
    """Ask the process that works at it to stop; without one it ends at once. Fails as not_found.

    The holder's next plan is then refused. So it learns of the request, and sends no more.
    """
    for _ in range(TRIES_MAX):
        stored = await plan_of_job(access, job)
        found = stored.job
        assert found is not None, "it has an id"
        if not stored.plan.unfinished or found.stop:
            return document(stored)
        plan = replace(stored.plan, unfinished=stored.plan.held, job=replace(found, stop=True, why=""))
        data = msgspec.json.encode(plan)
        key = key_of(access, stored.kind, stored.owner)
        if isinstance(
            await append(access.js, access.names.actors, key, data, expected=stored.revision), Appended
        ):
            return document(await plan_of_job(access, job))
    raise OperationError("conflict", f"{job} keeps changing; try again")
