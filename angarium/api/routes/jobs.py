"""Replays, and jobs: the work that continues after the request that began it."""

from typing import Any

from litestar import Request, Response, delete, get, post
from litestar.params import FromPath

from actors.ids import tenant_of
from angarium import quantities
from angarium.api.admission.gate import caller, needs
from angarium.api.api_state import ApiState, InjectedAccess, InjectedApi
from angarium.api.background.jobs import UNFINISHED_MAX
from angarium.api.openapi.jobs import (
    GET_JOB,
    LIST_JOBS,
    REPLAY_EVENTS,
    STOP_JOB,
    JobPage,
    ReplayRequest,
)
from angarium.api.problems import Fault, ProblemRaised, hidden, invalid, result_of
from angarium.api.queries.cursors import JobCursor, PageSize, cursor_of_job, job_page_start_of
from angarium.api.queries.times import seconds
from angarium.api.requests.bodies import decoded, json_body
from angarium.api.requests.headers import headers_by_name
from angarium.api.routes.publishing import idempotency_key
from angarium.operations.failures import NotDone
from angarium.operations.jobs import listing
from angarium.operations.jobs.begin import StartedJob, begin_replay
from angarium.operations.jobs.plans import JobDocument, kind_and_owner
from angarium.operations.jobs.show import show
from angarium.operations.jobs.stop import stop
from angarium.operations.replays.preview import Preview, preview
from angarium.operations.replays.resendable import ReplayFilter
from streams.buckets.api_tokens import ALL_TENANTS

UNFINISHED_RETRY_S = 30
"""The `Retry-After` for a tenant that has too many unfinished replays; jobs take turns of 30 s."""


@post(
    "/v1/tenants/{tenant:str}/receivers/{name:str}/replay", status_code=202, opt=needs("manage"),
    **REPLAY_EVENTS,
)  # fmt: skip
async def replay_events(
    request: Request[Any, Any, Any],
    tenant: FromPath[str],
    name: FromPath[str],
    api: InjectedApi,
    access: InjectedAccess,
) -> Response[JobDocument | Preview]:
    """Send a receiver past events again."""
    given = decoded(await json_body(request, api.limits), ReplayRequest)
    receiver, per_second = f"{tenant}.{name}", _per_second(given.rate)
    until = None if given.until is None else seconds(given.until)
    wanted = ReplayFilter(since=seconds(given.since), until=until, types=given.types)
    with api.control_limits.admit(tenant):
        if given.dry_run:
            return Response(result_of(await preview(api.access, receiver, wanted)), status_code=200)
        if not api.jobs.has_room(receiver):
            detail = f"{UNFINISHED_MAX} replays of the tenant are unfinished; wait for one, or stop it"
            raise ProblemRaised(429, "rate", detail, retry_after=str(UNFINISHED_RETRY_S))
        key = idempotency_key(headers_by_name(request.scope["headers"]))
        return accepted(api, result_of(await begin_replay(access, receiver, wanted, per_second, key)))


@get("/v1/jobs", opt=needs("read"), **LIST_JOBS)
async def list_jobs(
    request: Request[Any, Any, Any], api: InjectedApi, limit: PageSize = 50, cursor: JobCursor = None
) -> JobPage:
    """List the jobs of the token's tenant, newest first; with a token for all tenants, those of all."""
    tenant = caller(request).tenant
    with api.control_limits.admit(tenant):
        plans = result_of(await api.jobs.all())
        whose = None if tenant == ALL_TENANTS else tenant
        found = result_of(await listing.list_jobs(api.access, whose, limit, job_page_start_of(cursor), plans))
    return JobPage(jobs=found.jobs, next_cursor=cursor_of_job(found.next))


@get("/v1/jobs/{job:str}", opt=needs("read"), **GET_JOB)
async def get_job(request: Request[Any, Any, Any], job: FromPath[str], api: InjectedApi) -> JobDocument:
    """Show a job."""
    _must_see(request, job)
    return _found(await show(api.access, job, api.jobs.unfinished()))


@delete("/v1/jobs/{job:str}", status_code=200, opt=needs("manage"), **STOP_JOB)
async def stop_job(request: Request[Any, Any, Any], job: FromPath[str], api: InjectedApi) -> JobDocument:
    """Stop a job."""
    _must_see(request, job)
    found = _found(await stop(api.access, job))
    api.jobs.wake()
    return found


def accepted(api: ApiState, begun: StartedJob) -> Response[Any]:
    """The answer if a job was begun. Raises `ProblemRaised` if another one is unfinished, with its path."""
    location = f"/v1/jobs/{begun.job.id}"
    if not begun.mine:
        detail = f"{begun.job.id} is unfinished: wait for its end, or stop it"
        if begun.job.origin == "command line":
            by = f" by {begun.job.by}" if begun.job.by else ""
            detail = f"{begun.job.id}, begun on the command line{by}, is unfinished: it has to be ended there"
        raise ProblemRaised(409, f"{begun.job.kind}-unfinished", detail, location=location)
    api.jobs.wake()
    return Response(begun.job, status_code=202, headers={"location": location})


def _must_see(request: Request[Any, Any, Any], job: str) -> None:
    """Raises `ProblemRaised` if the job is another tenant's."""
    found = kind_and_owner(job)
    if found is None or not caller(request).token.sees(tenant_of(found[1])):
        raise hidden()


def _found(outcome: JobDocument | NotDone) -> JobDocument:
    """The job; a missing one gets the same answer as a hidden one. Raises `ProblemRaised`."""
    if isinstance(outcome, NotDone) and outcome.kind == "not_found":
        raise hidden()
    return result_of(outcome)


def _per_second(rate: str) -> float:
    try:
        return quantities.parse_rate(rate).per_second
    except quantities.BadQuantity as error:
        raise invalid(Fault(pointer="/rate", detail=str(error))) from None
