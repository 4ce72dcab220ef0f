"""Admission: who asks, and whether that may be, for each page behind the sign-in.

A page states the scope that it needs. Without a session the answer leads to the sign-in. A session whose
token lacks the scope, or is for another tenant, gets the answer for a page that does not exist. A form is
admitted only with the text that its page had for it.
"""

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
from angarium.console.console_state import CONSOLE, ConsoleState
from angarium.console.sessions import ConsoleSession
from streams.buckets.api_tokens import ALL_TENANTS, Scope

SESSION_COOKIE = "angarium_console"
FORM_COOKIE = "angarium_console_form"
"""The cookie that the form to sign in has to match, since there is no session yet."""
SIGN_IN = "/console/sign-in"
REFRESH_HEADER = "x-console-refresh"
"""The header of a request with which a page refreshes itself."""
FORM_FIELDS_MAX = 512
CSRF_FIELD = "csrf"
SESSION, FORM = "angarium_session", "angarium_form"
"""Members of a request's state."""
_SCOPES = "angarium_scopes"

Asked = Request[Any, Any, Any]
AskedTenant = Annotated[str, QueryParameter(name="tenant", max_length=64)]
"""The tenant that a page of several tenants is asked about; empty for all."""
Form = dict[str, list[str]]


class SignInNeeded(AngariumError):
    """There is no session; `back` is the page to show after signing in."""

    def __init__(self, back: str) -> None:
        super().__init__("sign in first")
        self.back = back


def needs(*scopes: Scope) -> dict[str, Any]:
    """The `opt` of a page: it is for tokens with one of these scopes."""
    return {_SCOPES: scopes}


async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Admit a request to a page behind the sign-in. Raises `SignInNeeded` and `ProblemRaised`."""
    assert isinstance(connection, Request)
    if connection.method == "OPTIONS":  # Litestar's own handler, which states no scope.
        raise method_not_allowed(("GET",))
    console: ConsoleState = connection.scope["state"][CONSOLE]
    if not console.api.is_ready:
        raise unavailable("NATS cannot be reached; load the page again in a moment")
    session = session_of(connection, console)
    if session is None:
        raise SignInNeeded(_back(connection))
    tenant = connection.path_params.get("tenant")
    if not any(map(session.may, handler.opt[_SCOPES])) or not sees(session, tenant):
        raise hidden()
    if connection.method != "GET":
        form = await read_form(connection)
        check_form(connection, form, session.csrf)
        connection.scope["state"][FORM] = form
    connection.scope["state"][SESSION] = session


def session_of(request: Asked, console: ConsoleState) -> ConsoleSession | None:
    """The session of the browser that asks."""
    text = request.cookies.get(SESSION_COOKIE, "")
    return console.sessions.find(text, is_use=REFRESH_HEADER not in request.headers) if text else None


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


async def read_form(request: Asked) -> Form:
    """The fields of a form. Raises `ProblemRaised`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise ProblemRaised(415, "unsupported", "send the form as the page has it")
    try:
        pairs = parse_qsl(
            (await request.body()).decode("ascii"), keep_blank_values=True, errors="strict",
            max_num_fields=FORM_FIELDS_MAX,
        )  # fmt: skip
    except ValueError:
        raise ProblemRaised(422, "invalid", "the form cannot be read; load its page again") from None
    form: Form = {}
    for name, value in pairs:
        form.setdefault(name, []).append(value)
    return form


def check_form(request: Asked, form: Form, expected: str) -> None:
    """Raise `ProblemRaised` unless a page of ours, for this browser, had the form."""
    given = form.get(CSRF_FIELD, [""])[0]
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") or not expected or not _same(given, expected):
        raise ProblemRaised(
            409, "refused", "the form is not from this session, or too old; load its page again"
        )


def field(form: Form, name: str) -> str:
    """The value of a field, or an empty text."""
    return form.get(name, [""])[0]


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _back(request: Asked) -> str:
    """The sign-in with the way back to a page that only shows something."""
    if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
        return SIGN_IN
    query = request.scope["query_string"].decode("latin-1")
    return f"{SIGN_IN}?next={quote(request.url.path + (f'?{query}' if query else ''), safe='')}"
