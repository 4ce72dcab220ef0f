"""One event: its journey over all receivers, with each attempt, and where it still waits."""

from typing import Annotated
from urllib.parse import quote

from litestar import Response, get
from litestar.params import FromPath, QueryParameter

from angarium.api.problems import ProblemRaised, result_of
from angarium.api.queries.journeys import JourneyCursor, journey_of_event
from angarium.console.admission import AskedTenant, needs, tenant_seen
from angarium.console.console_state import InjectedConsole, InjectedSession
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page, redirect
from angarium.operations.dead_letters.find_for_event import letters_of

PAGE_DELIVERIES = 25
PAGE_REFRESH_S = 5


@get("/events", opt=needs("read"))
async def find_event(
    request: ConsoleRequest,
    session: InjectedSession,
    tenant: AskedTenant = "",
    id: Annotated[str, QueryParameter(max_length=256)] = "",
) -> Response[bytes]:
    """The form to find an event; with an id and a tenant, the way to its page."""
    about = tenant_seen(session, tenant.strip())
    if about and id.strip():
        return redirect(f"/console/events/{about}/{quote(id.strip(), safe='')}")
    return page(request, "find_event.html", session, tenant=about, id=id.strip())


@get("/events/{tenant:str}/{event:str}", opt=needs("read"))
async def show_event(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: FromPath[str],
    event: FromPath[str],
    cursor: JourneyCursor = None,
) -> Response[bytes]:
    """The journey of an event."""
    try:
        found = await journey_of_event(console.api, tenant, event, PAGE_DELIVERIES, cursor)
    except ProblemRaised as raised:
        return page(
            request, "no_event.html", session, status=raised.problem.status, tenant=tenant, event=event,
            why=raised.problem.detail,
        )  # fmt: skip
    dead = {each.receiver for each in found.deliveries if each.state == "dead"}
    with console.api.letter_limits.admit(tenant):
        letters = result_of(await letters_of(console.access, event, dead))
    return page(
        request, "event.html", session, tenant=tenant, event=event, journey=found, cursor=cursor,
        letters=letters, live=f"/console/live/{tenant}", refresh_s=PAGE_REFRESH_S,
    )  # fmt: skip
