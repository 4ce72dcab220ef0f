"""Erasing events of a tenant: asked for here, carried out by a node."""

from typing import Any

from litestar import Request, delete, get
from litestar.params import FromPath

from angarium.api.api_state import InjectedAccess
from angarium.api.gate import caller, needs
from angarium.api.openapi.erasures import ERASE_EVENT, GET_ERASURE
from angarium.api.problems import answered
from angarium.operations.erase import ErasureStatus, get_erasure, request_erasure

PATH = "/v1/tenants/{tenant:str}/events/{event:str}"


@delete(PATH, status_code=202, opt=needs("manage"), **ERASE_EVENT)
async def erase_event(
    request: Request[Any, Any, Any], tenant: FromPath[str], event: FromPath[str], access: InjectedAccess
) -> ErasureStatus:
    """Request that an event be erased, on record, in the name of the token."""
    return answered(await request_erasure(access, tenant, event, f"token {caller(request).id}"))


@get(f"{PATH}/erasure", opt=needs("read"), **GET_ERASURE)
async def get_event_erasure(
    tenant: FromPath[str], event: FromPath[str], access: InjectedAccess
) -> ErasureStatus:
    """Tell what became of the last request."""
    return answered(await get_erasure(access, tenant, event))
