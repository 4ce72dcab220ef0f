"""The overview: what is wrong, the receivers whose events wait longest, the totals, and the fleet."""

import asyncio

from litestar import Response, get

from angarium.console.admission import AskedTenant, needs, tenant_seen
from angarium.console.cached_values import refresh_interval
from angarium.console.console_state import InjectedConsole, InjectedSession
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.hour_chart import hour_chart
from angarium.console.rendering.responses import page, redirect
from streams.buckets.api_tokens import ALL_TENANTS


@get("/", opt=needs("read", "operate"))
async def show_overview(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: AskedTenant = "",
) -> Response[bytes]:
    """The overview of a tenant, or of all."""
    if not session.may("read"):
        return redirect("/console/fleet")
    about = tenant_seen(session, tenant)
    sees_fleet = session.may("operate") and about is None
    top, hour, alerts, nodes, findings = await asyncio.gather(
        console.overviews.get(about or ALL_TENANTS),
        console.hours.get(about or ALL_TENANTS),
        console.alerts.get(about) if about else _nothing(),
        console.nodes.get("") if sees_fleet else _nothing(),
        console.findings.get("") if sees_fleet else _nothing(),
    )
    waiting = top.value.waiting if top.value else None
    chart = hour_chart(hour.value, waiting) if hour.value else None
    return page(
        request, "overview.html", session, tenant=about, top=top, chart=chart, hour=hour, alerts=alerts,
        nodes=nodes, findings=findings, live=f"/console/live/{about}" if about else "",
        refresh_s=refresh_interval(top, hour, alerts, nodes, findings),
    )  # fmt: skip


async def _nothing() -> None:
    """Read nothing, for a part of the page that is not shown."""
