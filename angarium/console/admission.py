"""Admission: who asks, and whether that may be, for each page behind the sign-in.

A page states the scope that it needs. Without a session the answer leads to the sign-in. A session whose
token lacks the scope, or is for another tenant, gets the answer for a page that does not exist. A form is
admitted only with the text that its page had for it.
"""

import asyncio
import hmac
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter

from actors.errors import AngariumError
from actors.ids import is_tenant
from angarium.api.problems import ProblemRaised, hidden, method_not_allowed, unavailable
from angarium.api.requests.bodies import read_body
from angarium.api.requests.headers import header, headers_by_name
from angarium.console.console_state import CONSOLE, ConsoleState
from angarium.console.paths import REFRESH_HEADER, SIGN_IN_PATH, ConsoleRequest, kept_cookie
from angarium.console.sessions import ConsoleSession
from streams.buckets.api_tokens import ALL_TENANTS, Scope

SESSION_COOKIE = "angarium_console"
FORM_COOKIE = "angarium_console_form"
"""The cookie that the form to sign in has to match, since there is no session yet."""
FORM_TYPE = "application/x-www-form-urlencoded"
FORM_FIELDS_MAX = 512
SESSION_PAGES_PER_S = 20.0
"""Pages of a session: a browser with four live pages asks for four a second."""
ADDRESS_PAGES_PER_S = 200.0
"""Pages of an address without a session. Behind a proxy, all people have one address."""
FORM_BYTES_MAX = 64 << 10
CSRF_FIELD = "csrf"
SESSION, FORM = "angarium_session", "angarium_form"
"""Members of a request's state."""
_SCOPES, _FORM_BYTES_MAX = "angarium_scopes", "angarium_form_bytes_max"
AskedTenant = Annotated[str, QueryParameter(name="tenant", max_length=64)]
"""The tenant that a page of several tenants is asked about; empty for all."""
Form = dict[str, list[str]]


class SignInNeeded(AngariumError):
    """There is no session; `back` is the page to show after signing in."""

    def __init__(self, back: str) -> None:
        super().__init__("sign in first")
        self.back = back


def needs(*scopes: Scope, form_bytes_max: int = FORM_BYTES_MAX) -> dict[str, Any]:
    """The `opt` of a page: it is for tokens with one of these scopes, and its forms may be so large."""
    return {_SCOPES: scopes, _FORM_BYTES_MAX: form_bytes_max}


async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Admit a request to a page behind the sign-in. Raises `SignInNeeded` and `ProblemRaised`."""
    assert isinstance(connection, Request)
    if connection.method == "OPTIONS":  # Litestar's own handler, which states no scope.
        raise method_not_allowed(("GET", "POST"))
    console: ConsoleState = connection.scope["state"][CONSOLE]
    if not console.api.is_ready:
        raise unavailable("NATS cannot be reached; load the page again in a moment")
    session = session_of(connection, console)
    if session is None:
        limit_address(connection, console)
        raise SignInNeeded(_back(connection))
    _limit_session(session, console)
    console.api.token_uses.record(session.token_id)
    tenant = connection.path_params.get("tenant")
    if not session.may(*handler.opt[_SCOPES]) or not sees(session, tenant):
        raise hidden()
    if connection.method != "GET":
        sender = tenant or session.token.tenant
        form = await read_form(connection, console, sender, handler.opt[_FORM_BYTES_MAX])
        check_form(connection, form, session.csrf)
        connection.scope["state"][FORM] = form
    connection.scope["state"][SESSION] = session


def session_of(request: ConsoleRequest, console: ConsoleState) -> ConsoleSession | None:
    """The session of the browser that asks."""
    text = kept_cookie(request, SESSION_COOKIE)
    return console.sessions.find(text, is_use=REFRESH_HEADER not in request.headers) if text else None


async def guard_open(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Admit a request to a page without a sign-in. Raises `ProblemRaised`."""
    assert isinstance(connection, Request)
    limit_address(connection, connection.scope["state"][CONSOLE])


def limit_address(request: ConsoleRequest, console: ConsoleState) -> None:
    """Count a request without a session. Raises `ProblemRaised` if its address makes too many."""
    _limit(console, f"address {address_of(request)}", ADDRESS_PAGES_PER_S, "this address")


def _limit_session(session: ConsoleSession, console: ConsoleState) -> None:
    _limit(console, f"session {session.key}", SESSION_PAGES_PER_S, "this browser")


def _limit(console: ConsoleState, key: str, per_s: float, who: str) -> None:
    status = console.page_rates.take(key, per_s, 1, asyncio.get_running_loop().time())
    if not status.admitted:
        detail = f"{who} asks for more than {per_s:g} pages a second; load the page again in a moment"
        raise ProblemRaised(429, "rate", detail, retry_after=str(status.wait_s))


def address_of(request: ConsoleRequest) -> str:
    """The address that the request came from: that of the proxy, if there is one."""
    return request.client.host if request.client else ""


def sees(session: ConsoleSession, tenant: str | None) -> bool:
    """True if the session may see the tenant's data; a page without a tenant shows each its own."""
    return tenant is None or (is_tenant(tenant) and session.token.sees(tenant))


def tenant_seen(session: ConsoleSession, asked: str) -> str | None:
    """The tenant that a page is about; None: all of them. Raises `ProblemRaised`."""
    if session.token.tenant != ALL_TENANTS:
        asked = asked or session.token.tenant
    if asked and not sees(session, asked):
        raise hidden()
    return asked or None


async def read_form(
    request: ConsoleRequest, console: ConsoleState, sender: str, bytes_max: int = FORM_BYTES_MAX
) -> Form:
    """The fields of a form. `sender`: whose forms share a part of the memory. Raises `ProblemRaised`."""
    headers = headers_by_name(request.scope["headers"])
    if header(headers, b"content-type").partition(";")[0].strip().lower() != FORM_TYPE:
        raise ProblemRaised(415, "unsupported", "send the form as the page has it")
    with console.form_limits.admit(sender) as admitted:
        body = await read_body(request.receive, headers, console.form_limits, admitted, bytes_max)
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FORM_FIELDS_MAX
        )
    except ValueError:
        raise ProblemRaised(422, "invalid", "the form cannot be read; load its page again") from None
    form: Form = {}
    for name, value in pairs:
        form.setdefault(name, []).append(value)
    return form


def check_form(request: ConsoleRequest, form: Form, expected: str) -> None:
    """Raise `ProblemRaised` unless a page of ours, for this browser, had the form."""
    given = form.get(CSRF_FIELD, [""])[0]
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") or not expected or not _same(given, expected):
        raise ProblemRaised(
            409, "refused", "the form is out of date, or of another sign-in; load its page again"
        )


def field(form: Form, name: str) -> str:
    """The value of a field, or an empty text."""
    return form.get(name, [""])[0]


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def is_from_elsewhere(request: ConsoleRequest) -> bool:
    """True if a page of another site leads here: browsers then send no cookie with `SameSite=Strict`."""
    return _is_shown(request) and request.headers.get("sec-fetch-site") in ("cross-site", "same-site")


def own_address(request: ConsoleRequest) -> str:
    """The path of the request as it was sent, with its query."""
    path, query = request.scope["raw_path"], request.scope["query_string"]
    return (path + (b"?" + query if query else b"")).decode("latin-1")


def _is_shown(request: ConsoleRequest) -> bool:
    """True for a page that a browser will show, not load into another one."""
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


def _back(request: ConsoleRequest) -> str:
    """The sign-in with the way back to a page that only shows something."""
    return (
        f"{SIGN_IN_PATH}?next={quote(own_address(request), safe='')}" if _is_shown(request) else SIGN_IN_PATH
    )
