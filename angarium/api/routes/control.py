"""Control: the live state of a receiver, and requests to its owner, answered once they are recorded."""

from typing import Annotated

import msgspec
from litestar import get, post
from litestar.params import FromPath, QueryParameter

from angarium.api.admission.gate import needs
from angarium.api.api_state import InjectedAccess, InjectedApi
from angarium.api.openapi.control import (
    FORGET_EVENTS,
    GET_RECEIVER_STATE,
    PAUSE_RECEIVER,
    PING_RECEIVER,
    RESUME_RECEIVER,
    SKIP_EVENT,
    VERIFY_RECEIVER,
    PauseState,
    PingResult,
    ResumeResult,
    VerifyResult,
)
from angarium.api.problems import Fault, invalid, result_of
from angarium.api.queries.ask_ledger import ask_ledger, past_ms
from angarium.api.queries.journeys import operation_for
from angarium.api.queries.times import Moment, moment
from angarium.operations.control_requests.inspection import StateDocument, inspect_receiver
from angarium.operations.control_requests.operator_actions import (
    Forgotten,
    Skipped,
    forget,
    pause,
    ping,
    resume,
    skip,
    verify,
)
from angarium.operations.ledger_queries.state_at import state_at
from angarium.operations.receiver_list.listing import get_health

PATH = "/v1/tenants/{tenant:str}/receivers/{name:str}"


@get(f"{PATH}/state", opt=needs("read"), **GET_RECEIVER_STATE)
async def get_receiver_state(
    tenant: FromPath[str],
    name: FromPath[str],
    api: InjectedApi,
    health: Annotated[
        bool, QueryParameter(description="Also show its throughput, and what limits it.")
    ] = False,
    at: Moment = None,
) -> StateDocument:
    """Show the live state of a receiver; with `at`, its state at that time, from the ledger."""
    receiver = f"{tenant}.{name}"
    if (then := moment("at", at)) is not None:
        if health:
            raise invalid(
                Fault(
                    parameter="health", detail="health is known only for the present; leave out health or at"
                )
            )
        instant = past_ms("at", then)
        return await ask_ledger(api, tenant, lambda ledger: state_at(ledger, receiver, instant))
    with api.control_limits.admit(tenant):
        found = result_of(await inspect_receiver(api.access, receiver))
        found = found | {"remedy": operation_for(found.get("remedy"), receiver)}
        if health:
            by_name = result_of(await get_health(api.access, [receiver]))
            found = found | {"health": msgspec.to_builtins(by_name.get(receiver))}
    return found


@post(f"{PATH}/pause", status_code=200, opt=needs("manage"), **PAUSE_RECEIVER)
async def pause_receiver(
    tenant: FromPath[str], name: FromPath[str], api: InjectedApi, access: InjectedAccess
) -> PauseState:
    """Pause a receiver: its events wait."""
    with api.control_limits.admit(tenant):
        result_of(await pause(access, f"{tenant}.{name}"))
    return PauseState(paused=True)


@post(f"{PATH}/resume", status_code=200, opt=needs("manage"), **RESUME_RECEIVER)
async def resume_receiver(
    tenant: FromPath[str], name: FromPath[str], api: InjectedApi, access: InjectedAccess
) -> ResumeResult:
    """End a pause, a disablement, backoff and throttling, and forget the learnt pace."""
    with api.control_limits.admit(tenant):
        resumed = result_of(await resume(access, f"{tenant}.{name}"))
    return ResumeResult(paused=False, forgotten_pace=msgspec.to_builtins(resumed.forgotten_pace))


@post(f"{PATH}/ping", status_code=200, opt=needs("manage"), **PING_RECEIVER)
async def ping_receiver(tenant: FromPath[str], name: FromPath[str], api: InjectedApi) -> PingResult:
    """Post a ping to a receiver."""
    with api.control_limits.admit(tenant):
        pong = result_of(await ping(api.access, f"{tenant}.{name}"))
    return PingResult(status=pong.status, error=pong.error, latency_ms=pong.latency_ms)


@post(f"{PATH}/verify", status_code=200, opt=needs("manage"), **VERIFY_RECEIVER)
async def verify_receiver(tenant: FromPath[str], name: FromPath[str], api: InjectedApi) -> VerifyResult:
    """Have a receiver prove itself now."""
    with api.control_limits.admit(tenant):
        found = result_of(await verify(api.access, f"{tenant}.{name}"))
    return VerifyResult(
        verified=found.verified, status=found.status, error=found.error, latency_ms=found.latency_ms
    )


@post(f"{PATH}/skip", status_code=200, opt=needs("manage"), **SKIP_EVENT)
async def skip_event(
    tenant: FromPath[str], name: FromPath[str], api: InjectedApi, access: InjectedAccess
) -> Skipped:
    """Skip the oldest event: it becomes a dead letter."""
    with api.control_limits.admit(tenant):
        return result_of(await skip(access, f"{tenant}.{name}"))


@post(f"{PATH}/forget", status_code=200, opt=needs("manage"), **FORGET_EVENTS)
async def forget_events(
    tenant: FromPath[str], name: FromPath[str], api: InjectedApi, access: InjectedAccess
) -> Forgotten:
    """Discard the waiting events of a receiver, and clear its failures."""
    with api.control_limits.admit(tenant):
        done = result_of(await forget(access, f"{tenant}.{name}"))
    assert done is not None, "this request is not asked whether to agree"
    return done
