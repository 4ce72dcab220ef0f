"""Searches of the streams for an event: a bounded number at once, each for a bounded time."""

import asyncio
from collections.abc import Callable, Collection, Mapping

from angarium.api.api_state import ApiState
from angarium.operations.events.search import EventSearch, SearchBounds, search_event
from angarium.operations.failures import NotDone

SEARCH_TIMEOUT_S = 10.0
"""A search that takes longer is given up; the answer then has what the ledger knows."""
RECEIVERS_TIMEOUT_S = 5.0
"""Time for asking about the receivers one by one; the answer has those that were asked until then."""
RECEIVERS_AT_ONCE = 4


async def search_streams(
    api: ApiState,
    tenant: str,
    event: str,
    recorded: Mapping[str, Collection[str | None]],
    after: str,
    last: str | None,
    why_unrecorded: Callable[[float], str],
) -> EventSearch | NotDone:
    """Search for an event, except for its deliveries that are recorded."""
    bounds = SearchBounds(
        after=after, last=last, at_once=RECEIVERS_AT_ONCE, timeout_s=RECEIVERS_TIMEOUT_S
    )  # fmt: skip
    try:
        async with asyncio.timeout(SEARCH_TIMEOUT_S):
            return await search_event(
                api.access, event, tenant, recorded, bounds, why_unrecorded,
                existing=api.names.of_tenant(tenant), recent_counts=api.recent_counts,
            )  # fmt: skip
    except TimeoutError:
        text = f"the search took longer than {SEARCH_TIMEOUT_S:g} s"
        return NotDone(kind="unavailable", text=text)
