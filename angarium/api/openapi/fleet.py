"""The fleet and the tokens: what the operations on them take and answer, and their description."""

from datetime import datetime
from typing import Annotated, Any, Literal

from litestar.openapi.datastructures import ResponseSpec
from msgspec import Meta, Struct

from angarium.api.openapi.parts import body, operation, problems, result
from angarium.operations.fleet import SeenNodes, SeenShard
from angarium.operations.health.finding import ReceiverAilment
from angarium.operations.tokens.create import NOTE_MAX, RATE_MAX
from angarium.operations.tokens.listing import ListedToken
from streams.stores.tokens import Scope

LASTS_MAX_S = 100 * 366 * 86_400.0


class Alert(Struct, frozen=True, kw_only=True):
    """One thing that is unwell, and what to do about it.

    A `problem` stays until an operator mends it; a `warning` is about a receiver, which gets what its own
    answers allow. What is about one receiver names it.
    """

    level: Literal["warning", "problem"]
    subject: str
    text: str
    remedy: str
    receiver: str | None
    ailment: ReceiverAilment | None


class Alerts(Struct, frozen=True, kw_only=True):
    """All that is unwell, problems first; of many receivers the worst. `as_of` is when it was looked at."""

    as_of: datetime
    alerts: list[Alert]


class Shards(Struct, frozen=True):
    """All shards, in order."""

    shards: list[SeenShard]


class TokenPage(Struct, frozen=True, kw_only=True):
    """Tokens by their ids, without what proves them."""

    tokens: list[ListedToken]
    next_cursor: str | None


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token that is to be made; `lasts_s` is how long it holds, `rate` events a second."""

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


_ASKED = {"tenant": "acme", "scopes": ["publish"], "lasts_s": 7776000, "rate": 100, "note": "the shop"}
_TOKEN = {
    "id": "k3f6w2m5qzra", "tenant": "acme", "scopes": ["publish"], "created_at": "2026-11-22T20:00:00Z",
    "expires_at": "2027-02-20T20:00:00Z", "rate": 100, "note": "the shop",
}  # fmt: skip
LIST_NODES: dict[str, Any] = {
    "summary": "List the nodes that live",
    "tags": ["fleet"],
    "responses": {
        200: result(SeenNodes, "Those whose heartbeat is not over", {
            "nodes": [{"node": "n1", "version": "1.0.0", "started_at": "2026-11-22T20:00:00Z", "ttl_s": 5.0}],
            "problems": [],
        }),
        **problems(),
    },
}  # fmt: skip
LIST_ALERTS: dict[str, Any] = {
    "summary": "List what is unwell: nodes, shards, storage, and receivers",
    "tags": ["fleet"],
    "responses": {
        200: result(Alerts, "What there is to do; nothing if the list is empty", {
            "as_of": "2026-11-22T20:00:00Z",
            "alerts": [{
                "level": "warning", "subject": "receivers",
                "text": "acme.billing is offline for 2 h, 1,204 waiting, the oldest for 2 h",
                "remedy": "run angarium inspect acme.billing to see why", "receiver": "acme.billing",
                "ailment": "offline",
            }],
        }),
        **problems(),
    },
}  # fmt: skip
LIST_SHARDS: dict[str, Any] = {
    "summary": "List the shards and their owners",
    "tags": ["fleet"],
    "responses": {
        200: result(Shards, "All of them", {
            "shards": [{
                "shard": 0, "node": "n1", "claimed_at": "2026-11-22T20:00:00Z", "alive": True,
                "refused": None,
            }],
        }),
        **problems(),
    },
}  # fmt: skip
LIST_TOKENS: dict[str, Any] = {
    "summary": "List the tokens",
    "tags": ["tokens"],
    "responses": {
        200: result(TokenPage, "A page of them", {
            "tokens": [_TOKEN | {"used_at": "2026-11-22T20:10:00Z"}], "next_cursor": None,
        }),
        **problems(422),
    },
}  # fmt: skip
CREATE_TOKEN: dict[str, Any] = {
    "summary": "Make a token",
    "tags": ["tokens"],
    "operation_class": operation(
        body("Whom it is for, and what it may do.", {"application/json": _ASKED}, "TokenRequest"),
    ),
    "responses": {
        201: result(CreatedTokenDocument, "The token, whose text only this answer shows",
                    _TOKEN | {"token": "ang_k3f6w2m5qzra_" + "x" * 43}),
        **problems(400, 408, 413, 415, 422),
    },
}  # fmt: skip
REVOKE_TOKEN: dict[str, Any] = {
    "summary": "Revoke a token",
    "tags": ["tokens"],
    "responses": {
        204: ResponseSpec(None, description="Within a second no process takes it", generate_examples=False),
        **problems(422),
    },
}
