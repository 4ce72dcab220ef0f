"""The tokens of the API, for its operators."""

from typing import Any

from litestar import Request, Response, delete, get, post
from litestar.params import FromPath

from angarium.api.admission.gate import needs
from angarium.api.api_state import InjectedAccess, InjectedApi
from angarium.api.openapi.tokens import (
    CREATE_PORTAL_LINK,
    CREATE_TOKEN,
    LIST_TOKENS,
    REVOKE_TOKEN,
    CreatedTokenDocument,
    PortalLinkDocument,
    PortalLinkRequest,
    TokenPage,
    TokenRequest,
)
from angarium.api.problems import result_of
from angarium.api.queries.cursors import NameCursor, PageSize, after_name, cursor_after
from angarium.api.requests.bodies import decoded, json_body
from angarium.operations.tokens import portal_links
from angarium.operations.tokens.create import NewToken, create
from angarium.operations.tokens.listing import all_tokens
from angarium.operations.tokens.portal_links import NewPortalLink
from angarium.operations.tokens.revoke import revoke


@get("/v1/tokens", opt=needs("operate"), **LIST_TOKENS)
async def list_tokens(
    access: InjectedAccess,
    limit: PageSize = 50,
    cursor: NameCursor = "",
) -> TokenPage:
    """List the tokens, by their ids."""
    found = sorted(result_of(await all_tokens(access)), key=lambda each: each.id)
    left = [each for each in found if each.id > after_name(cursor)]
    page = left[:limit]
    return TokenPage(tokens=page, next_cursor=cursor_after(page[-1].id) if len(left) > limit else None)


@post("/v1/tokens", status_code=201, opt=needs("operate"), **CREATE_TOKEN)
async def create_token(
    request: Request[Any, Any, Any], api: InjectedApi, access: InjectedAccess
) -> Response[CreatedTokenDocument]:
    """Create a token."""
    asked = decoded(await json_body(request, api.limits), TokenRequest)
    new = NewToken(
        tenant=asked.tenant, scopes=asked.scopes, lasts_s=asked.lasts_s, rate=asked.rate, note=asked.note
    )
    made = result_of(await create(access, new))
    token = made.token
    shown = CreatedTokenDocument(
        id=made.id, token=made.text, tenant=token.tenant, scopes=token.scopes, created_at=token.created_at,
        expires_at=token.expires_at, rate=token.rate, note=token.note,
    )  # fmt: skip
    headers = {"cache-control": "no-store", "location": f"/v1/tokens/{made.id}"}
    return Response(shown, status_code=201, headers=headers)


@post("/v1/tenants/{tenant:str}/portal-links", status_code=201, opt=needs("operate"), **CREATE_PORTAL_LINK)
async def create_portal_link(
    request: Request[Any, Any, Any], tenant: FromPath[str], api: InjectedApi, access: InjectedAccess
) -> Response[PortalLinkDocument]:
    """Make a link that signs the people of a tenant in to the console."""
    asked = decoded(await json_body(request, api.limits) or b"{}", PortalLinkRequest)
    new = NewPortalLink(tenant=tenant, manage=asked.manage, lasts_s=asked.lasts_s, note=asked.note)
    made = result_of(await portal_links.create_portal_link(access, new))
    shown = PortalLinkDocument(
        id=made.id, url=made.url, tenant=tenant, scopes=made.token.scopes, expires_at=made.token.expires_at
    )
    return Response(shown, status_code=201, headers={"cache-control": "no-store"})


@delete("/v1/tokens/{token_id:str}", status_code=204, opt=needs("operate"), **REVOKE_TOKEN)
async def revoke_token(token_id: FromPath[str], access: InjectedAccess) -> None:
    """Revoke a token."""
    result_of(await revoke(access, token_id))
