"""Live attempts of a tenant, as server-sent events."""

from typing import Annotated, Any

from litestar import Request, get
from litestar.params import FromPath, QueryParameter
from litestar.response.streaming import ASGIStreamingResponse
from litestar.types import ASGIApp, Receive, Scope, Send

from angarium.api.admission.gate import caller, needs
from angarium.api.api_state import ApiState, InjectedApi
from angarium.api.background.tail_streams import TailStream
from angarium.api.openapi.tail import EVENT_STREAM, TAIL_ATTEMPTS
from angarium.api.requests.headers import header, headers_by_name
from angarium.operations.live.tail import TailFilter

TYPES_MAX = 16
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class _Events(ASGIStreamingResponse):
    """The answer of one stream, which is closed with it."""

    def __init__(self, api: ApiState, stream: TailStream) -> None:
        super().__init__(
            iterator=stream.pieces(), status_code=200, media_type=EVENT_STREAM, headers=dict(_HEADERS)
        )
        self._api = api
        self._tail_stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._api.tails.close(self._tail_stream)


@get("/v1/tenants/{tenant:str}/tail", opt=needs("read"), media_type=EVENT_STREAM, **TAIL_ATTEMPTS)
async def tail_attempts(
    request: Request[Any, Any, Any],
    tenant: FromPath[str],
    api: InjectedApi,
    receiver: Annotated[str | None, QueryParameter(max_length=64)] = None,
    failed: Annotated[bool, QueryParameter()] = False,
    types: Annotated[list[str] | None, QueryParameter(name="type", max_items=TYPES_MAX)] = None,
) -> ASGIApp:
    """Follow attempts as they are recorded."""
    who = caller(request)
    wanted = TailFilter(
        about=tenant if receiver is None else f"{tenant}.{receiver}",
        failed=failed,
        types=tuple(types or ()),
    )
    after = header(headers_by_name(request.scope["headers"]), b"last-event-id")
    return _Events(api, await api.tails.open(who.id, who.token, wanted, after or None))
