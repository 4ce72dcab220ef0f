"""The page of a link that signs in the people of one tenant: it says whose data they will see, and asks.

The token is in the fragment of the link, which this process is not sent. `portal.js` puts it into the form;
without JavaScript, people paste the link. So what only opens a link, such as a preview, is not signed in.
"""

from litestar import Response, get, post
from litestar.params import FromPath

from actors.ids import is_tenant
from angarium.api.problems import hidden
from angarium.console.admission import field
from angarium.console.console_state import InjectedConsole
from angarium.console.pages.signing_in.sign_in import (
    begin_session,
    checked_form,
    count_wrong,
    form_page,
    proven_token,
)
from angarium.console.paths import CONSOLE_PATH, ConsoleRequest

NOT_VALID = "This link is not valid. It may have expired or been revoked: ask for another one."


@get("/portal/{tenant:str}")
async def show_portal(request: ConsoleRequest, tenant: FromPath[str]) -> Response[bytes]:
    """The page of a link, the same for every name that a tenant can have."""
    return _form(request, tenant)


@post("/portal/{tenant:str}", status_code=200)
async def enter_portal(
    request: ConsoleRequest, console: InjectedConsole, tenant: FromPath[str]
) -> Response[bytes]:
    """Begin a session, if the link is valid, and for the tenant that its page named."""
    form = await checked_form(request, console)
    found = proven_token(console, field(form, "token").strip().rpartition("#")[2])
    if found is None or found.token.tenant != tenant or "read" not in found.token.scopes:
        count_wrong(request, console)
        return _form(request, tenant, NOT_VALID, status=401)
    return begin_session(request, console, found, f"{CONSOLE_PATH}/")


def _form(request: ConsoleRequest, tenant: str, why: str = "", *, status: int = 200) -> Response[bytes]:
    if not is_tenant(tenant):
        raise hidden()
    return form_page(request, "portal.html", status=status, tenant=tenant, why=why)
