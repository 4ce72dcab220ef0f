"""Health, for load balancers and supervisors: it needs no token, and says only yes or no."""

from litestar import get
from litestar.openapi.datastructures import ResponseSpec
from msgspec import Struct

from angarium.api.api_state import InjectedApi
from angarium.api.openapi.parts import problems, result
from angarium.api.problems import unavailable


class Health(Struct, frozen=True):
    """The answer where all is well."""

    ok: bool


_WELL = Health(ok=True)
_ANSWER: dict[int, ResponseSpec] = {200: result(Health, "All is well", {"ok": True})}


@get("/healthz", tags=["health"], summary="Whether the process runs", security=[], responses=_ANSWER)
async def healthz() -> Health:
    """Answer as long as the process serves; restart it when it does not."""
    return _WELL


@get(
    "/readyz",
    tags=["health"],
    summary="Whether requests can be answered",
    security=[],
    responses=_ANSWER | {503: problems()[503]},
)
async def readyz(api: InjectedApi) -> Health:
    """Answer 200 where NATS is there, and tokens are known; send requests elsewhere when it is 503."""
    if not api.ready:
        raise unavailable("NATS is away")
    return _WELL
