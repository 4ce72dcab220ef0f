"""The list of receivers: a page at a time, with their health, and those whose names contain a text."""

from bisect import bisect_right
from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from actors.ids import tenant_of
from angarium.api.problems import result_of
from angarium.console.admission import AskedTenant, needs, tenant_seen
from angarium.console.cached_values import refresh_interval
from angarium.console.console_state import InjectedConsole, InjectedSession
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page
from angarium.operations.receiver_list.listing import overview
from streams.buckets.api_tokens import ALL_TENANTS

PAGE_RECEIVERS = 50
SEARCH_MAX = 130


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
    known = await console.names.get("")
    found = names_found(known.value or [], about, q.strip(), after)
    with console.api.control_limits.admit(about or ALL_TENANTS):
        rows = result_of(await overview(console.access, None, only=found.names)).rows if found.names else []
    return page(
        request, "receivers.html", session, tenant=about, q=q.strip(), after=after, rows=rows, found=found,
        is_read=known.value is not None, refresh_s=refresh_interval(known),
    )  # fmt: skip


def names_found(known: list[str], tenant: str | None, text: str, after: str) -> NamesFound:
    """The first names after one that contain the text, in whatever case."""
    begin, end = 0, len(known)
    if tenant is not None:
        begin, end = bisect_right(known, f"{tenant}."), bisect_right(known, f"{tenant}/")
    some = [each for each in known[begin:end] if tenant is None or tenant_of(each) == tenant]
    if text:
        wanted = text.lower()
        some = [each for each in some if wanted in each.lower()]
    start = bisect_right(some, after) if after else 0
    names = some[start : start + PAGE_RECEIVERS]
    more = len(some) > start + PAGE_RECEIVERS
    return NamesFound(names, names[-1] if more else None, len(some))
