"""Signing in with a token of the API, and signing out."""

import asyncio
import re
import secrets
from typing import Any

from litestar import Response, get, post
from msgspec import Struct

from angarium.api.admission.gate import is_expired
from angarium.api.problems import ProblemRaised, unavailable
from angarium.console.admission import (
    FORM_COOKIE,
    SESSION_COOKIE,
    Form,
    address_of,
    check_form,
    field,
    needs,
    read_form,
    session_of,
)
from angarium.console.console_state import ConsoleState, InjectedConsole, InjectedSession
from angarium.console.paths import CONSOLE_PATH, SIGN_IN_PATH, ConsoleRequest, kept_cookie
from angarium.console.rendering.responses import cookie, page, redirect
from angarium.console.sessions import LIFE_MAX_S
from angarium.operations.tokens.secret import parse_token, proves
from streams.buckets.api_tokens import Token

TRIES_PER_S = 5.0
"""Rate at which an address may try wrong tokens; a token has 256 random bits, so this only saves work."""
FORM_LASTS_S = 3600.0
FORM_TEXT = re.compile(r"[A-Za-z0-9_-]{43}\Z")
NEXT_MAX = 512

WRONG = "Invalid token. It may be misspelled, revoked or expired."
NOTHING_TO_SEE = "This token can only publish: the console needs the scope read or operate."


class ProvenToken(Struct, frozen=True):
    """A valid token whose secret was given, and its id."""

    id: str
    token: Token


@get("/sign-in")
async def show_sign_in(request: ConsoleRequest, console: InjectedConsole) -> Response[bytes]:
    """The form to sign in."""
    back = _way_back(request.query_params.get("next", ""))
    if console.api.is_ready and session_of(request, console) is not None:
        return redirect(back)
    return _form(request, back)


@post("/sign-in", status_code=200)
async def do_sign_in(request: ConsoleRequest, console: InjectedConsole) -> Response[bytes]:
    """Begin a session, if the token is valid.

    Only wrong tokens count as tries: behind a proxy all people have one address, and one of them could keep
    the others out.
    """
    form = await checked_form(request, console)
    back = _way_back(field(form, "next"))
    found = proven_token(console, field(form, "token").strip())
    if found is None:
        count_wrong(request, console)
        return _form(request, back, WRONG, status=401)
    if not {"read", "operate"} & {*found.token.scopes}:
        return _form(request, back, NOTHING_TO_SEE, status=403)
    return begin_session(request, console, found, back)


@post("/sign-out", status_code=200, opt=needs("read", "operate"))
async def sign_out(
    request: ConsoleRequest, console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """End the session."""
    console.sessions.close(session)
    return redirect(SIGN_IN_PATH, cookie(request, SESSION_COOKIE, "", 0))


def _form(request: ConsoleRequest, back: str, why: str = "", *, status: int = 200) -> Response[bytes]:
    return form_page(request, "sign_in.html", status=status, back=back, why=why)


def form_page(request: ConsoleRequest, template: str, *, status: int, **values: Any) -> Response[bytes]:
    """A page with a form to sign in, and the cookie that the form has to match."""
    # The form of another tab is still to be sent, so both have the same text.
    known = kept_cookie(request, FORM_COOKIE)
    csrf = known if FORM_TEXT.match(known) else secrets.token_urlsafe(32)
    kept = cookie(request, FORM_COOKIE, csrf, FORM_LASTS_S)
    return page(request, template, None, status=status, cookies=(kept,), csrf=csrf, **values)


async def checked_form(request: ConsoleRequest, console: ConsoleState) -> Form:
    """The fields of a form to sign in, if it is of ours. Raises `ProblemRaised`."""
    form = await read_form(request, console, address_of(request))
    check_form(request, form, kept_cookie(request, FORM_COOKIE))
    if not console.api.is_ready:
        raise unavailable("NATS cannot be reached; load the page again in a moment")
    return form


def begin_session(
    request: ConsoleRequest, console: ConsoleState, found: ProvenToken, back: str
) -> Response[bytes]:
    """Begin a session, in place of one with another token, and lead to a page."""
    if (old := session_of(request, console)) is not None:
        if old.token_id == found.id:
            return redirect(back)  # Another tab has signed in meanwhile; its forms stay valid.
        console.sessions.close(old)
    text, _ = console.sessions.open(found.id, found.token)
    return redirect(back, cookie(request, SESSION_COOKIE, text, LIFE_MAX_S))


def count_wrong(request: ConsoleRequest, console: ConsoleState) -> None:
    """Count a wrong token. Raises `ProblemRaised` if the address tries too many."""
    status = console.sign_ins.take(address_of(request), TRIES_PER_S, 1, asyncio.get_running_loop().time())
    if not status.admitted:
        raise ProblemRaised(
            429, "rate", "too many wrong tokens from this address; wait a moment",
            retry_after=str(status.wait_s),
        )  # fmt: skip


def proven_token(console: ConsoleState, text: str) -> ProvenToken | None:
    """The token that a text proves. It takes as long for every wrong text."""
    secret = parse_token(text)
    if secret is None:
        return None
    token = console.api.tokens.get(secret.id)
    if not proves(secret, token) or token is None or is_expired(token):
        return None
    return ProvenToken(secret.id, token)


def _way_back(path: str) -> str:
    """The page to show after signing in: one of ours, or the first one."""
    ours = path == CONSOLE_PATH or path.startswith((f"{CONSOLE_PATH}/", f"{CONSOLE_PATH}?"))
    safe = path.isascii() and path.isprintable() and "\\" not in path and len(path) <= NEXT_MAX
    return path if ours and safe and not path.startswith(SIGN_IN_PATH) else CONSOLE_PATH
