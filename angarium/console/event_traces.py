"""The traces of an event outside the ledger: where it waits, and its dead letters, for the page of an event.

Both are searched, since no stream has an index of ids. So a page shows what was found a moment ago.
"""

from msgspec import Struct

from angarium.api.api_state import ApiState
from angarium.api.problems import ProblemRaised, result_of
from angarium.api.queries.journeys import AskedEvent, recorded_deliveries, search_further
from angarium.operations.dead_letters.find_for_event import letters_of
from angarium.operations.events.search import EventSearch
from angarium.operations.failures import NotDone
from angarium.operations.ledger_queries.journey import Journey

LEDGER_UNREADABLE = 503
"""The status of the problem that there is no ledger, or that it does not answer."""


class EventTraces(Struct, frozen=True):
    """The result of a search of the streams for an event, and its dead letters by receiver and number."""

    search: EventSearch | NotDone
    letters: dict[tuple[str, int], int]


async def event_traces(api: ApiState, asked: AskedEvent) -> EventTraces:
    """Search for an event. Raises `ProblemRaised`."""
    with api.search_limits.admit(asked.tenant):
        found, _ = await recorded_or_why(api, asked)
        search = await search_further(api, asked, found)
    dead = {each["receiver"] for each in found.deliveries if each["state"] == "dead"} if found else set()
    with api.letter_limits.admit(asked.tenant):
        return EventTraces(search, result_of(await letters_of(api.access, asked.event, dead)))


async def recorded_or_why(api: ApiState, asked: AskedEvent) -> tuple[Journey | None, str]:
    """The deliveries that the ledger has; None if it cannot be read, and why. Raises `ProblemRaised`."""
    try:
        return await recorded_deliveries(api, asked), ""
    except ProblemRaised as raised:
        if raised.problem.status != LEDGER_UNREADABLE:
            raise
        return None, raised.problem.detail
