"""The overview: what is wrong, the receivers whose events wait longest, the totals, and the fleet."""

from typing import Any

from litestar import Request, Response, get

from angarium.console.admission import AskedTenant, needs, tenant_seen
from angarium.console.console_state import InjectedConsole, InjectedSession
from angarium.console.showing.answers import page, redirect
from streams.buckets.api_tokens import ALL_TENANTS

PAGE_REFRESH_S = 5


@get("/", opt=needs("read", "operate"))
async def show_overview(
    request: Request[Any, Any, Any],
    console: InjectedConsole,
    session: InjectedSession,
    tenant: AskedTenant = "",
) -> Response[bytes]:
    """The overview of a tenant, or of all."""
    if not session.may("read"):
        return redirect("/console/fleet")
    about = tenant_seen(session, tenant)
    sees_fleet = session.may("operate") and about is None
    top = await console.overviews.get(about or ALL_TENANTS)
    return page(
        request, "overview.html", session, tenant=about, top=top,
        nodes=await console.nodes.get("") if sees_fleet else None,
        examined=await console.examinations.get("") if sees_fleet else None,
        live=f"/console/live/{about}" if about else "", refresh_s=PAGE_REFRESH_S,
    )  # fmt: skip
