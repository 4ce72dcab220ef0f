"""Health, for load balancers and supervisors: it needs no token, and says only yes or no."""

from litestar import get
from litestar.openapi.datastructures import ResponseSpec
from msgspec import Struct

from angarium.api.api_state import InjectedApi
from angarium.api.openapi.shared_texts import problems, result
from angarium.api.problems import unavailable


class Health(Struct, frozen=True):
    """The answer if all is well."""

    ok: bool


_WELL = Health(ok=True)
_ANSWER: dict[int, ResponseSpec] = {200: result(Health, "All is well", {"ok": True})}


@get("/healthz", tags=["health"], summary="Check that the process runs", security=[], responses=_ANSWER)
async def healthz() -> Health:
    """Answer while the process serves; restart it if it does not answer."""
    return _WELL


@get(
    "/readyz",
    tags=["health"],
    summary="Check that requests can be answered",
    security=[],
    responses=_ANSWER | {503: problems()[503]},
)
async def readyz(api: InjectedApi) -> Health:
    """Answer 200 if NATS is reachable and the tokens are known; on 503, send requests elsewhere."""
    if not api.is_ready:
        raise unavailable("NATS cannot be reached")
    return _WELL
