"""Replays, and jobs: the work that goes on after the request that began it."""

from typing import Any

from litestar import Request, Response, delete, get, post
from litestar.params import FromPath

from angarium import quantities
from angarium.api.api_state import ApiState, InjectedAccess, InjectedApi
from angarium.api.gate import caller, needs
from angarium.api.openapi.background.jobs import GET_JOB, REPLAY_EVENTS, STOP_JOB, ReplayRequest
from angarium.api.problems import Fault, Refusal, answered, hidden, invalid
from angarium.api.queries.times import seconds
from angarium.api.requests.bodies import decoded, json_body
from angarium.api.requests.headers import headers_by_name
from angarium.api.routes.publishing import idempotency_key
from angarium.operations.failures import NotDone
from angarium.operations.jobs.begin import Begun, begin_replay
from angarium.operations.jobs.plans import JobDocument, place_of
from angarium.operations.jobs.steer import show, stop
from angarium.operations.replay import Preview, ReplayRange, preview


@post(
    "/v1/tenants/{tenant:str}/receivers/{name:str}/replay", status_code=202, opt=needs("manage"),
    **REPLAY_EVENTS,
)  # fmt: skip
async def replay_events(
    request: Request[Any, Any, Any], tenant: FromPath[str], name: FromPath[str], api: InjectedApi
) -> Response[JobDocument | Preview]:
    """Send a receiver again what it was sent."""
    given = decoded(await json_body(request, api), ReplayRequest)
    receiver, per_second = f"{tenant}.{name}", _per_second(given.rate)
    until = None if given.until is None else seconds(given.until)
    wanted = ReplayRange(since=seconds(given.since), until=until, types=given.types)
    with api.control_limits.admit(tenant):
        if given.dry_run:
            return Response(answered(await preview(api.access, receiver, wanted)), status_code=200)
        key = idempotency_key(headers_by_name(request.scope["headers"]))
        return accepted(api, answered(await begin_replay(api.access, receiver, wanted, per_second, key)))


@get("/v1/jobs/{job:str}", opt=needs("read"), **GET_JOB)
async def get_job(request: Request[Any, Any, Any], job: FromPath[str], access: InjectedAccess) -> JobDocument:
    """Show a job."""
    _must_see(request, job)
    return _found(await show(access, job))


@delete("/v1/jobs/{job:str}", status_code=200, opt=needs("manage"), **STOP_JOB)
async def stop_job(request: Request[Any, Any, Any], job: FromPath[str], api: InjectedApi) -> JobDocument:
    """Stop a job."""
    _must_see(request, job)
    found = _found(await stop(api.access, job))
    api.jobs.look()
    return found


def accepted(api: ApiState, begun: Begun) -> Response[Any]:
    """The answer if a job was begun. Raises `Refusal`, with its place, if another one is not finished."""
    place = f"/v1/jobs/{begun.job.id}"
    if not begun.mine:
        detail = f"{begun.job.id} is not finished: wait for its end, or stop it"
        raise Refusal(409, "conflict", detail, location=place)
    api.jobs.look()
    return Response(begun.job, status_code=202, headers={"location": place})


def _must_see(request: Request[Any, Any, Any], job: str) -> None:
    """Raises `Refusal` if the job is another tenant's."""
    place = place_of(job)
    if place is None or not caller(request).token.sees(place[1].partition(".")[0]):
        raise hidden()


def _found(outcome: JobDocument | NotDone) -> JobDocument:
    """The job, or the answer that is also given if it may not be seen. Raises `Refusal`."""
    if isinstance(outcome, NotDone) and outcome.kind == "not_found":
        raise hidden()
    return answered(outcome)


def _per_second(rate: str) -> float:
    try:
        return quantities.rate(rate).per_second
    except quantities.BadQuantity as error:
        raise invalid(Fault(pointer="/rate", detail=str(error))) from None
