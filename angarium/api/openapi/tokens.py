"""The tokens: what the operations on them take and answer, and their description."""

from datetime import datetime
from typing import Annotated, Any

from litestar.openapi.datastructures import ResponseSpec
from msgspec import Meta, Struct

from angarium.api.openapi.shared_texts import body, operation, problems, result
from angarium.operations.tokens.create import NOTE_MAX, RATE_MAX
from angarium.operations.tokens.listing import ListedToken
from angarium.operations.tokens.portal_links import (
    LINK_LASTS_MAX_S,
    LINK_LASTS_MIN_S,
    LINK_LASTS_S,
    LINK_NOTE_MAX,
)
from streams.buckets.api_tokens import Scope

LASTS_MAX_S = 100 * 366 * 86_400.0


class TokenPage(Struct, frozen=True, kw_only=True):
    """Tokens in the order of their ids, without their secrets."""

    tokens: list[ListedToken]
    next_cursor: str | None


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to create: it is valid for `lasts_s`, and may publish `rate` events a second."""

    tenant: Annotated[str, Meta(min_length=1, max_length=64)]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=4)]
    lasts_s: Annotated[float, Meta(gt=0, le=LASTS_MAX_S)] | None = None
    rate: Annotated[float, Meta(gt=0, le=RATE_MAX)] | None = None
    note: Annotated[str, Meta(max_length=NOTE_MAX)] = ""


class CreatedTokenDocument(Struct, frozen=True, kw_only=True):
    """A new token; `token` is its text, which only this answer shows."""

    id: str
    token: str
    tenant: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None
    rate: float | None
    note: str


class PortalLinkRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link to make, valid for `lasts_s`; with `manage`, its holders may also change receivers."""

    manage: bool = False
    lasts_s: Annotated[float, Meta(ge=LINK_LASTS_MIN_S, le=LINK_LASTS_MAX_S)] = LINK_LASTS_S
    note: Annotated[str, Meta(max_length=LINK_NOTE_MAX)] = ""


class PortalLinkDocument(Struct, frozen=True, kw_only=True):
    """A link that signs in to the console, and the id of its token; only this answer shows the link."""

    id: str
    url: str
    tenant: str
    scopes: tuple[Scope, ...]
    expires_at: datetime | None


_REQUEST = {"tenant": "acme", "scopes": ["publish"], "lasts_s": 7776000, "rate": 100, "note": "the shop"}
_TOKEN = {
    "id": "k3f6w2m5qzra", "tenant": "acme", "scopes": ["publish"], "created_at": "2026-11-22T20:00:00Z",
    "expires_at": "2027-02-20T20:00:00Z", "rate": 100, "note": "the shop",
}  # fmt: skip
LIST_TOKENS: dict[str, Any] = {
    "summary": "List the tokens",
    "tags": ["tokens"],
    "responses": {
        200: result(TokenPage, "A page of tokens", {
            "tokens": [_TOKEN | {"used_at": "2026-11-22T20:10:00Z", "created_by": "ada@desk"}],
            "next_cursor": None,
        }),
        **problems(422),
    },
}  # fmt: skip
CREATE_TOKEN: dict[str, Any] = {
    "summary": "Create a token",
    "tags": ["tokens"],
    "operation_class": operation(
        body("The tenant and the scopes.", {"application/json": _REQUEST}, "TokenRequest"),
    ),
    "responses": {
        201: result(CreatedTokenDocument, "The token; only this answer shows its text",
                    _TOKEN | {"token": "ang_k3f6w2m5qzra_" + "x" * 43}),
        **problems(400, 408, 413, 415, 422),
    },
}  # fmt: skip
REVOKE_TOKEN: dict[str, Any] = {
    "summary": "Revoke a token",
    "tags": ["tokens"],
    "responses": {
        204: ResponseSpec(
            None,
            description="The token is revoked; within a second, no process accepts it",
            generate_examples=False,
        ),
        **problems(422),
    },
}
CREATE_PORTAL_LINK: dict[str, Any] = {
    "summary": "Make a link to the console",
    "tags": ["tokens"],
    "operation_class": operation(
        body("Its rights and its validity.", {"application/json": {"manage": False, "lasts_s": 3600}},
             "PortalLinkRequest", required=False),
    ),
    "responses": {
        201: result(PortalLinkDocument, "The link; only this answer shows it", {
            "id": "k3f6w2m5qzra", "tenant": "acme", "scopes": ["read"], "expires_at": "2026-11-22T21:00:00Z",
            "url": "https://hooks.example.com/console/portal/acme#ang_k3f6w2m5qzra_" + "x" * 43,
        }),
        **problems(400, 408, 409, 413, 415, 422),
    },
}  # fmt: skip
