"""The fleet, for its operators: nodes, shards, and what is wrong with the installation."""

import asyncio
from typing import Any

from litestar import Request, Response, get

from angarium.console.admission import needs
from angarium.console.console_state import InjectedConsole, InjectedSession
from angarium.console.recent_values import refresh_interval
from angarium.console.showing.answers import page


@get("/fleet", opt=needs("operate"))
async def show_fleet(
    request: Request[Any, Any, Any], console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """Nodes, shards, alerts and findings."""
    nodes, shards, examined = await asyncio.gather(
        console.nodes.get(""), console.shards.get(""), console.examinations.get("")
    )
    return page(
        request, "fleet.html", session, nodes=nodes, shards=shards, examined=examined,
        refresh_s=refresh_interval(nodes, shards, examined),
    )  # fmt: skip
