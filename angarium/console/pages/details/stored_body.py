"""Headers and body of an event, as a receiver gets them, while the stream still has a copy for it."""

import asyncio

from litestar import Response, get
from litestar.params import FromPath

from angarium.api.problems import hidden, not_found, result_of, unavailable
from angarium.api.queries.ask_ledger import ask_ledger
from angarium.api.requests.event_ids import ID_TEXT, is_id
from angarium.console.admission import needs
from angarium.console.console_state import ConsoleState, InjectedConsole, InjectedSession
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.escaped_text import body_shown
from angarium.console.rendering.responses import page, saved
from angarium.operations.events.recorded_copies import recorded_copies
from angarium.operations.events.stored_copy import StoredCopy, stored_copy

SHOWN_BYTES_MAX = 64 << 10
SEARCH_TIMEOUT_S = 10.0
"""Time for finding the copy: without a record of it, up to 10,000 waiting events are read."""
PATH = "/events/{tenant:str}/{event:str}/for/{name:str}"


@get(PATH, opt=needs("read"))
async def show_stored_body(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: FromPath[str],
    event: FromPath[str],
    name: FromPath[str],
) -> Response[bytes]:
    """The headers and the body of an event for a receiver."""
    found = await _copy(console, tenant, event, f"{tenant}.{name}")
    body = None if found.body is None else body_shown(found.body, SHOWN_BYTES_MAX)
    return page(
        request, "stored_body.html", session, tenant=tenant, event=event, name=name, found=found, body=body
    )


@get(f"{PATH}/body", opt=needs("read"))
async def save_stored_body(
    console: InjectedConsole, tenant: FromPath[str], event: FromPath[str], name: FromPath[str]
) -> Response[bytes]:
    """The body as a file that no browser shows."""
    found = await _copy(console, tenant, event, f"{tenant}.{name}")
    if found.body is None:
        raise hidden()
    return saved(found.body)


async def _copy(console: ConsoleState, tenant: str, event: str, receiver: str) -> StoredCopy:
    """The copy. Raises `ProblemRaised`."""
    if not is_id(event):
        raise not_found(f"an event's id is {ID_TEXT}")
    with console.api.search_limits.admit(tenant):
        recorded = await ask_ledger(
            console.api, tenant, lambda ledger: recorded_copies(ledger, event, receiver)
        )
        try:
            async with asyncio.timeout(SEARCH_TIMEOUT_S):
                return result_of(await stored_copy(console.access, event, receiver, recorded))
        except TimeoutError:
            raise unavailable(f"the copy was not found within {SEARCH_TIMEOUT_S:g} s") from None
