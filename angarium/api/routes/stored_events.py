"""Stored events: erased, and, while they wait for their time, listed and cancelled.

A client requests an erasure here, and a node carries it out.
"""

import asyncio
from typing import Annotated

from litestar import delete, get
from litestar.params import FromPath, QueryParameter

from angarium.api.admission.gate import needs
from angarium.api.admission.unfinished_erasures import UNFINISHED_MAX
from angarium.api.api_state import InjectedAccess, InjectedApi
from angarium.api.openapi.control import ERASE_EVENT, GET_ERASURE
from angarium.api.openapi.publishing import CANCEL_TIMED, LIST_TIMED, TimedEventList
from angarium.api.problems import ProblemRaised, result_of
from angarium.api.queries.cursors import LaterCursor, PageSize, cursor_of_entry, list_key_of
from angarium.operations.events.cancel_timed import CancelledEvents, cancel_timed
from angarium.operations.events.erase import ErasureStatus, get_erasure, request_erasure
from angarium.operations.events.list_timed import list_timed

PATH = "/v1/tenants/{tenant:str}/events/{event:str}"
LATER = "/v1/tenants/{tenant:str}/later"
REQUESTS_PER_S = 10.0
"""Requests of a tenant that a process accepts: each leaves a record, and a node searches for its event."""

UNFINISHED_RETRY_S = 10
"""The `Retry-After` for a tenant that has too many unfinished ones: an erasure takes some seconds."""

ReceiverName = Annotated[
    str,
    QueryParameter(
        pattern=r"^([A-Za-z0-9_-]{1,64})?$", description="Only events for this one receiver of the tenant."
    ),
]


@delete(PATH, status_code=202, opt=needs("manage"), **ERASE_EVENT)
async def erase_event(
    tenant: FromPath[str], event: FromPath[str], api: InjectedApi, access: InjectedAccess
) -> ErasureStatus:
    """Record the token's request that an event be erased."""
    standing = api.erasure_rates.take(tenant, REQUESTS_PER_S, 1, asyncio.get_running_loop().time())
    if not standing.admitted:
        detail = f"a tenant may request {REQUESTS_PER_S:g} erasures a second"
        raise ProblemRaised(429, "rate", detail, retry_after=str(standing.wait_s))
    if not await api.erasures.admit(tenant, event):
        detail = f"{UNFINISHED_MAX} erasures of the tenant are unfinished; send it again when some have ended"
        raise ProblemRaised(429, "rate", detail, retry_after=str(UNFINISHED_RETRY_S))
    return result_of(await request_erasure(access, tenant, event))


@get(f"{PATH}/erasure", opt=needs("read"), **GET_ERASURE)
async def get_event_erasure(
    tenant: FromPath[str], event: FromPath[str], access: InjectedAccess
) -> ErasureStatus:
    """Show the progress of the last request."""
    return result_of(await get_erasure(access, tenant, event))


@get(LATER, opt=needs("read"), **LIST_TIMED)
async def list_waiting(
    tenant: FromPath[str],
    api: InjectedApi,
    access: InjectedAccess,
    receiver: ReceiverName = "",
    limit: PageSize = 50,
    cursor: LaterCursor = None,
) -> TimedEventList:
    """List the timed events of a tenant, the next first."""
    with api.control_limits.admit(tenant):
        found = result_of(await list_timed(access, tenant, receiver, limit, list_key_of(cursor)))
    return TimedEventList(events=found.events, next_cursor=cursor_of_entry(found.next))


@delete(f"{LATER}/{{event:str}}", status_code=200, opt=needs("publish"), **CANCEL_TIMED)
async def cancel_waiting(
    tenant: FromPath[str], event: FromPath[str], api: InjectedApi, access: InjectedAccess
) -> CancelledEvents:
    """Cancel a timed event; with 200 it is never delivered."""
    with api.control_limits.admit(tenant):
        return result_of(await cancel_timed(access, tenant, event))
