"""The fleet, for those who operate it: its nodes, its shards, and the tokens of the API."""

from typing import Annotated, Any

from litestar import Request, Response, delete, get, post
from litestar.params import FromPath, QueryParameter

from angarium.api.api_state import InjectedAccess, InjectedApi
from angarium.api.gate import needs
from angarium.api.openapi.fleet import (
    CREATE_TOKEN,
    LIST_ALERTS,
    LIST_NODES,
    LIST_SHARDS,
    LIST_TOKENS,
    REVOKE_TOKEN,
    Alert,
    Alerts,
    CreatedTokenDocument,
    Shards,
    TokenPage,
    TokenRequest,
)
from angarium.api.problems import answered
from angarium.api.queries.cursors import Limit
from angarium.api.requests.bodies import decoded, json_body
from angarium.operations import fleet
from angarium.operations.fleet import SeenNodes
from angarium.operations.tokens.create import NewToken, create
from angarium.operations.tokens.listing import all_tokens
from angarium.operations.tokens.revoke import revoke


@get("/v1/nodes", opt=needs("operate"), **LIST_NODES)
async def list_nodes(access: InjectedAccess) -> SeenNodes:
    """List the nodes that live."""
    return answered(await fleet.nodes(access))


@get("/v1/alerts", opt=needs("operate"), **LIST_ALERTS)
async def list_alerts(api: InjectedApi) -> Alerts:
    """List what is unwell; who asks again within some seconds gets the same answer."""
    seen = await api.examination.recent()
    found = [
        Alert(
            level="warning" if each.ok else "problem", subject=each.subject, text=each.text,
            remedy=each.remedy, receiver=each.receiver, ailment=each.ailment,
        )
        for each in seen.findings
    ]  # fmt: skip
    return Alerts(as_of=seen.at, alerts=found)


@get("/v1/shards", opt=needs("operate"), **LIST_SHARDS)
async def list_shards(access: InjectedAccess) -> Shards:
    """List the shards and their owners."""
    return Shards(answered(await fleet.shards(access)))


@get("/v1/tokens", opt=needs("operate"), **LIST_TOKENS)
async def list_tokens(
    access: InjectedAccess,
    limit: Limit = 50,
    cursor: Annotated[str, QueryParameter(max_length=12)] = "",
) -> TokenPage:
    """List the tokens, by their ids."""
    found = sorted(answered(await all_tokens(access)), key=lambda each: each.id)
    left = [each for each in found if each.id > cursor]
    page = left[:limit]
    return TokenPage(tokens=page, next_cursor=page[-1].id if len(left) > limit else None)


@post("/v1/tokens", status_code=201, opt=needs("operate"), **CREATE_TOKEN)
async def create_token(request: Request[Any, Any, Any], api: InjectedApi) -> Response[CreatedTokenDocument]:
    """Make a token."""
    asked = decoded(await json_body(request, api), TokenRequest)
    new = NewToken(
        tenant=asked.tenant, scopes=asked.scopes, lasts_s=asked.lasts_s, rate=asked.rate, note=asked.note
    )
    made = answered(await create(api.access, new))
    token = made.token
    shown = CreatedTokenDocument(
        id=made.id, token=made.text, tenant=token.tenant, scopes=token.scopes, created_at=token.created_at,
        expires_at=token.expires_at, rate=token.rate, note=token.note,
    )  # fmt: skip
    headers = {"cache-control": "no-store", "location": f"/v1/tokens/{made.id}"}
    return Response(shown, status_code=201, headers=headers)


@delete("/v1/tokens/{token_id:str}", status_code=204, opt=needs("operate"), **REVOKE_TOKEN)
async def revoke_token(token_id: FromPath[str], access: InjectedAccess) -> None:
    """Revoke a token."""
    answered(await revoke(access, token_id))
