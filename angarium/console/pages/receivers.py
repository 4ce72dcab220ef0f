"""The list of receivers: a page at a time, with their health, and those whose names contain a text."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from angarium.console.admission import AskedTenant, needs, tenant_seen
from angarium.console.cached_values import refresh_interval
from angarium.console.console_state import InjectedConsole, InjectedSession
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page
from streams.bounded_gather import in_turns

PAGE_RECEIVERS = 50
SEARCH_MAX = 130
SEARCHED_AT_ONCE = 512
SEARCH_TURN_S = 0.002
"""Time for which names are searched before others get their turns: a search of 100,000 has a few of them."""


class NamesFound(Struct, frozen=True):
    """The names of a page, the last one if others follow, and how many there are in all."""

    names: list[str]
    last: str | None
    total: int


@get("/receivers", opt=needs("read"))
async def list_receivers(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: AskedTenant = "",
    q: Annotated[str, QueryParameter(max_length=SEARCH_MAX)] = "",
    after: Annotated[str, QueryParameter(max_length=SEARCH_MAX)] = "",
) -> Response[bytes]:
    """The receivers of a tenant, or of all."""
    about = tenant_seen(session, tenant)
    found = await names_found(console.api.names.of_tenant(about), q.strip(), after)
    rows = await console.rows.get(tuple(found.names)) if found.names else None
    return page(
        request, "receivers.html", session, tenant=about, q=q.strip(), after=after, rows=rows, found=found,
        refresh_s=refresh_interval(rows),
    )  # fmt: skip


async def names_found(known: Sequence[str], text: str, after: str) -> NamesFound:
    """The first names after one that contain the text, in whatever case. `known` are in order."""
    if text:
        wanted, found = text.lower(), list[str]()
        async for start in in_turns(range(0, len(known), SEARCHED_AT_ONCE), SEARCH_TURN_S):
            found += [each for each in known[start : start + SEARCHED_AT_ONCE] if wanted in each.lower()]
        known = found
    start = bisect_right(known, after)
    names = list(known[start : start + PAGE_RECEIVERS])
    more = len(known) > start + PAGE_RECEIVERS
    return NamesFound(names, names[-1] if more else None, len(known))
