"""The fleet, for its operators: nodes, shards, and what is wrong with the installation."""

import asyncio

from litestar import Response, get

from angarium.console.admission import needs
from angarium.console.cached_values import refresh_interval
from angarium.console.console_state import InjectedConsole, InjectedSession
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page


@get("/fleet", opt=needs("operate"))
async def show_fleet(
    request: ConsoleRequest, console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """Nodes, shards, alerts and findings."""
    nodes, shards, findings = await asyncio.gather(
        console.nodes.get(""), console.shards.get(""), console.findings.get("")
    )
    return page(
        request, "fleet.html", session, nodes=nodes, shards=shards, findings=findings,
        refresh_s=refresh_interval(nodes, shards, findings),
    )  # fmt: skip
