"""One event: its journey over all receivers, with each attempt, and where it still waits."""

from typing import Annotated
from urllib.parse import quote

from litestar import Response, get
from litestar.params import FromPath, QueryParameter

from angarium.api.problems import ProblemRaised
from angarium.api.queries.journeys import AskedEvent, JourneyCursor, being_searched, journey_page
from angarium.console.admission import AskedTenant, needs, tenant_seen
from angarium.console.cached_values import refresh_interval
from angarium.console.console_state import InjectedConsole, InjectedSession
from angarium.console.event_traces import recorded_or_why
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page, redirect
from angarium.operations.failures import NotDone

PAGE_DELIVERIES = 25
EVENT_ATTEMPTS_MAX = 200
"""Attempts on a page, so it may have fewer deliveries."""


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
    """The journey of an event.

    What the ledger has is shown at once; what has to be searched in the streams as soon as it is found.
    """
    asked = AskedEvent(
        tenant=tenant, event=event, limit=PAGE_DELIVERIES, cursor=cursor, attempts_max=EVENT_ATTEMPTS_MAX
    )
    try:
        found, no_ledger = await recorded_or_why(console.api, asked)
        traces = await console.traces.get(asked)
        if traces.value is None and not traces.problem:
            journey = being_searched(asked, found)
        else:
            unsearched = NotDone(kind="unavailable", text=traces.problem)
            journey = journey_page(asked, found, traces.value.search if traces.value else unsearched)
    except ProblemRaised as raised:
        return page(
            request, "no_event.html", session, status=raised.problem.status, tenant=tenant, event=event,
            why=raised.problem.detail,
        )  # fmt: skip
    return page(
        request, "event.html", session, tenant=tenant, event=event, journey=journey, cursor=cursor,
        letters=traces.value.letters if traces.value else {}, no_ledger=no_ledger,
        live=f"/console/live/{tenant}?event={quote(event, safe='')}", refresh_s=refresh_interval(traces),
        waiting_max=PAGE_DELIVERIES,
    )  # fmt: skip
