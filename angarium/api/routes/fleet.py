"""The fleet, for those who operate it: its nodes, its shards, and the tokens of the API."""

from typing import Annotated, Any

from litestar import Request, Response, delete, get, post
from litestar.params import FromPath, QueryParameter

from angarium.api.decoding import decoded, json_body
from angarium.api.gate import needs
from angarium.api.live import TheAccess, TheLive
from angarium.api.openapi import fleet as words
from angarium.api.openapi.fleet import NewTokenShown, Shards, TokenPage, TokenRequest
from angarium.api.problems import answered
from angarium.operations import fleet
from angarium.operations.fleet import SeenNodes
from angarium.operations.tokens.create import NewToken, create
from angarium.operations.tokens.listing import list_tokens
from angarium.operations.tokens.revoke import revoke

PAGE_MAX = 200


@get("/v1/nodes", opt=needs("operate"), **words.nodes)
async def nodes(access: TheAccess) -> SeenNodes:
    """List the nodes that live."""
    return answered(await fleet.nodes(access))


@get("/v1/shards", opt=needs("operate"), **words.shards)
async def shards(access: TheAccess) -> Shards:
    """List the shards and their owners."""
    return Shards(answered(await fleet.shards(access)))


@get("/v1/tokens", opt=needs("operate"), **words.listed)
async def tokens(
    access: TheAccess,
    limit: Annotated[int, QueryParameter(ge=1, le=PAGE_MAX)] = 50,
    cursor: Annotated[str, QueryParameter(max_length=12)] = "",
) -> TokenPage:
    """List the tokens, by their ids."""
    found = sorted(answered(await list_tokens(access)), key=lambda each: each.id)
    left = [each for each in found if each.id > cursor]
    page = left[:limit]
    return TokenPage(tokens=page, next_cursor=page[-1].id if len(left) > limit else None)


@post("/v1/tokens", status_code=201, opt=needs("operate"), **words.made)
async def make_token(request: Request[Any, Any, Any], live: TheLive) -> Response[NewTokenShown]:
    """Make a token."""
    asked = decoded(await json_body(request, live), TokenRequest)
    new = NewToken(
        tenant=asked.tenant, scopes=asked.scopes, lasts_s=asked.lasts_s, rate=asked.rate, note=asked.note
    )
    made = answered(await create(live.access, new))
    token = made.token
    shown = NewTokenShown(
        id=made.id, token=made.text, tenant=token.tenant, scopes=token.scopes, created_at=token.created_at,
        expires_at=token.expires_at, rate=token.rate, note=token.note,
    )  # fmt: skip
    headers = {"cache-control": "no-store", "location": f"/v1/tokens/{made.id}"}
    return Response(shown, status_code=201, headers=headers)


@delete("/v1/tokens/{token:str}", status_code=204, opt=needs("operate"), **words.revoked)
async def revoke_token(token: FromPath[str], access: TheAccess) -> None:
    """Revoke a token."""
    answered(await revoke(access, token))
