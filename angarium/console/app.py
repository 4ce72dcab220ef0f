"""The application of the console: its pages behind their guard, and every error as a page."""

from functools import cache
from typing import cast

from litestar import Litestar, Response, Router
from litestar.di import Provide
from litestar.enums import HttpMethod, ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send
from msgspec.structs import replace

from angarium.access import Access
from angarium.api.api_state import ApiState
from angarium.api.problems import problem_for
from angarium.console.admission import (
    SESSION,
    SignInNeeded,
    guard,
    guard_open,
    is_from_elsewhere,
    own_address,
    session_of,
)
from angarium.console.console_state import CONSOLE, ConsoleState
from angarium.console.pages import (
    dead_letters,
    events,
    files,
    fleet,
    live,
    overview,
    receiver,
    receiver_actions,
    receivers,
    redrive,
)
from angarium.console.pages.configuration import edit
from angarium.console.pages.details import rate_audit, replay, secret_rotation, stored_body
from angarium.console.pages.settings import links, tokens, view
from angarium.console.pages.signing_in import portal, sign_in
from angarium.console.paths import CONSOLE_PATH, METHOD, ConsoleRequest
from angarium.console.rendering.responses import page, redirect
from angarium.console.sessions import ConsoleSession

BEHIND_SIGN_IN = (
    overview.show_overview,
    receivers.list_receivers, receiver.show_receiver,
    receiver_actions.preview_action, receiver_actions.do_action,
    secret_rotation.preview_rotation, secret_rotation.do_rotation,
    replay.preview_replay, replay.do_replay, rate_audit.show_audit,
    events.find_event, events.show_event, stored_body.show_stored_body, stored_body.save_stored_body,
    dead_letters.list_dead_letters, dead_letters.show_dead_letter, dead_letters.save_body,
    redrive.preview_redrive, redrive.do_redrive, redrive.show_job, redrive.stop_job,
    fleet.show_fleet,
    edit.show_configuration_form, edit.take_configuration_form,
    view.show_settings,
    tokens.show_token_form, tokens.create_token, tokens.preview_revocation, tokens.revoke_token,
    links.show_link_form, links.create_link,
    live.follow_attempts,
    sign_in.sign_out,
)  # fmt: skip
"""The pages for those who have signed in; each names its scopes with `needs`."""
OPEN = (sign_in.show_sign_in, sign_in.do_sign_in, portal.show_portal, portal.enter_portal)


class Console:
    """The ASGI application of a process: the console's paths, and around it another application."""

    def __init__(self, api: ApiState, app: ASGIApp) -> None:
        self._api = api
        self._state = ConsoleState(api)
        api.on_close.append(self._state.close)
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or not is_ours(scope["path"]):
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        if method == "HEAD":  # The answer to GET, of which the server sends no body.
            scope = cast(HTTPScope, {**scope, "method": HttpMethod.GET})
        scope["state"] = {CONSOLE: self._state, METHOD: method}
        await routes()(scope, receive, self._api.requests.counting(send, method))


def is_ours(path: str) -> bool:
    """True for the paths of the console."""
    return path == CONSOLE_PATH or path.startswith(f"{CONSOLE_PATH}/")


@cache
def routes() -> Litestar:
    """The pages; as with the API, each request brings the state that it is for."""
    return Litestar(
        [
            Router(CONSOLE_PATH, route_handlers=BEHIND_SIGN_IN, guards=[guard]),
            Router(CONSOLE_PATH, route_handlers=OPEN, guards=[guard_open]),
            Router(CONSOLE_PATH, route_handlers=[files.get_file]),
        ],
        dependencies={
            "console": Provide(_console_of, sync_to_thread=False),
            "session": Provide(_session_of, sync_to_thread=False),
            "access": Provide(_access_of, sync_to_thread=False),
        },
        exception_handlers={SignInNeeded: _to_sign_in, Exception: _error_page},
        openapi_config=None,
        request_max_body_size=None,
        logging_config=None,
        debug=False,
    )


def _console_of(scope: Scope) -> ConsoleState:
    console: ConsoleState = scope["state"][CONSOLE]
    return console


def _session_of(scope: Scope) -> ConsoleSession:
    session: ConsoleSession = scope["state"][SESSION]
    return session


def _access_of(scope: Scope) -> Access:
    """Access in the name of the token with which the browser signed in."""
    return replace(_console_of(scope).access, by=f"token {_session_of(scope).token_id}")


def _to_sign_in(request: ConsoleRequest, error: SignInNeeded) -> Response[bytes]:
    """The way to the sign-in.

    A link from elsewhere, such as an alert, comes without the cookie: the page is asked for once more, from
    ourselves. The cookie stays, since it may be that of a session.
    """
    if is_from_elsewhere(request):
        return page(request, "again.html", None, status=200, again=own_address(request))
    return redirect(error.back)


def _error_page(request: ConsoleRequest, error: Exception) -> Response[bytes]:
    raised = problem_for(error, request.method, request.url.path)
    console: ConsoleState = request.scope["state"][CONSOLE]
    session = session_of(request, console) if console.api.is_ready else None
    return page(
        request, "error.html", session, status=raised.problem.status, headers=raised.headers,
        problem=raised.problem,
    )  # fmt: skip
