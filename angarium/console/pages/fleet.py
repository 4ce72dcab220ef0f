"""The fleet, for its operators: nodes, shards, and what is wrong with the installation."""

from typing import Any

from litestar import Request, Response, get

from angarium.console.admission import needs
from angarium.console.console_state import InjectedConsole, InjectedSession
from angarium.console.showing.answers import page

PAGE_REFRESH_S = 5


@get("/fleet", opt=needs("operate"))
async def show_fleet(
    request: Request[Any, Any, Any], console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """Nodes, shards, alerts and findings."""
    return page(
        request, "fleet.html", session, nodes=await console.nodes.get(""),
        shards=await console.shards.get(""), examined=await console.examinations.get(""),
        refresh_s=PAGE_REFRESH_S,
    )  # fmt: skip
