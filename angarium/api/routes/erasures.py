"""Erasures of events: a client requests them here, and a node carries them out."""

import asyncio

from litestar import delete, get
from litestar.params import FromPath

from angarium.api.admission.gate import needs
from angarium.api.admission.unfinished_erasures import UNFINISHED_MAX
from angarium.api.api_state import InjectedAccess, InjectedApi
from angarium.api.openapi.control import ERASE_EVENT, GET_ERASURE
from angarium.api.problems import ProblemRaised, result_of
from angarium.operations.events.erase import ErasureStatus, get_erasure, request_erasure

PATH = "/v1/tenants/{tenant:str}/events/{event:str}"
REQUESTS_PER_S = 10.0
"""Requests of a tenant that a process accepts: each leaves a record, and a node searches for its event."""

UNFINISHED_RETRY_S = 10
"""The `Retry-After` for a tenant that has too many unfinished ones: an erasure takes some seconds."""


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
