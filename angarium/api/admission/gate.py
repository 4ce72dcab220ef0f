"""The gate: identifies the caller of a request, and decides whether it may see the requested resource.

Without a valid token the answer is 401. A token for another tenant, or without the scope, gets the same 404
as for a missing resource, so that its holder does not learn whether there is one.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from msgspec import Struct

from actors.ids import is_tenant
from angarium.api.admission.token_uses import TokenUses
from angarium.api.problems import ProblemRaised, hidden, method_not_allowed, unavailable
from angarium.api.requests.headers import Headers, header, headers_by_name
from angarium.api.requests.query_parameters import check_parameters, parameters_of
from angarium.operations.tokens.secret import parse_token, proves
from streams.buckets.api_tokens import Scope, Token, TokenStore

_SCOPE = "angarium_scope"
CALLER = "angarium_caller"
API, GATE = "angarium_api", "angarium_gate"
"""Members of a request's state: what the process that serves it has."""
_PARAMETER = re.compile(r"{[^}]*}")
"""A parameter in a path; routes of different methods may give it different names."""


class Caller(Struct, frozen=True):
    """The token with which a request came."""

    id: str
    token: Token

    @property
    def tenant(self) -> str:
        """The tenant that it is for, or `*`."""
        return self.token.tenant


Request = ASGIConnection[Any, Any, Any, Any]


def needs(scope: Scope) -> dict[str, Any]:
    """The `opt` of a route: which scope a token must have for it."""
    return {_SCOPE: scope}


def caller(request: Request) -> Caller:
    """The caller of a request that has passed the gate."""
    found: Caller = request.scope["state"][CALLER]
    return found


async def guard(request: Request, handler: BaseRouteHandler) -> None:
    """The gate of the process that the request came to, as Litestar takes it for all routes below."""
    if request.scope.get("method") == "OPTIONS":  # Litestar's own handler, which states no scope.
        raise method_not_allowed(_methods(request))
    gate: Gate = request.scope["state"][GATE]
    headers, tenant = headers_by_name(request.scope["headers"]), request.path_params.get("tenant")
    request.scope["state"][CALLER] = gate.admitted(headers, handler.opt[_SCOPE], tenant)
    check_parameters(request.scope["query_string"], parameters_of(handler))


def _methods(request: Request) -> set[str]:
    """The methods that the requested path has."""
    asked = _PARAMETER.sub("{}", request.scope["path_template"])
    known = request.app.route_handler_method_map.items()
    return {str(each) for path, methods in known if _PARAMETER.sub("{}", path) == asked for each in methods}


class Gate:
    """The gate of one process, open while `is_ready`. Each route states its scope by `needs`."""

    def __init__(self, tokens: TokenStore, uses: TokenUses, is_ready: Callable[[], bool]) -> None:
        self._tokens = tokens
        self._uses = uses
        self._is_ready = is_ready

    def admitted(self, headers: Headers, needed: Scope, tenant: str | None) -> Caller:
        """The caller, if it is admitted; `tenant` is the one in the path, if any. Raises `ProblemRaised`."""
        if not self._is_ready():
            raise unavailable("NATS cannot be reached; send it again")
        found = self._identified(headers)
        if found is None:
            raise ProblemRaised(
                401, "unauthorized", "send Authorization: Bearer with a valid token",
                www_authenticate='Bearer realm="angarium"',
            )  # fmt: skip
        if needed not in found.token.scopes or not _sees(found.token, tenant):
            raise hidden()
        self._uses.record(found.id)
        return found

    def _identified(self, headers: Headers) -> Caller | None:
        scheme, _, text = header(headers, b"authorization").partition(" ")
        given = parse_token(text.strip()) if scheme.lower() == "bearer" else None
        if given is None:
            return None
        token = self._tokens.get(given.id)
        if not proves(given, token) or token is None or is_expired(token):
            return None
        return Caller(given.id, token)


def is_expired(token: Token) -> bool:
    """Return whether the time of a token is over."""
    return is_past(token.expires_at)


def is_past(end: datetime | None) -> bool:
    """True if that time is over; None: it never is."""
    return end is not None and end <= datetime.now(UTC)


def _sees(token: Token, tenant: str | None) -> bool:
    """True if a token may see a path. One without a tenant shows each tenant its own data, or the fleet."""
    if tenant is None:
        return True
    return is_tenant(tenant) and token.sees(tenant)
