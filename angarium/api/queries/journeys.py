"""The journey of an event: what the ledger recorded, and what the streams still have of it."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from litestar.params import QueryParameter
from msgspec import Struct

from angarium.api.api_state import ApiState
from angarium.api.openapi.ledger_queries import (
    DeliveryItem,
    DueItem,
    ErasedItem,
    JourneyPage,
    WaitingDeliveryItem,
)
from angarium.api.problems import not_found, problem_of
from angarium.api.queries.ask_ledger import ask_ledger
from angarium.api.queries.event_searches import search_streams
from angarium.api.requests.event_ids import ID_TEXT, is_id
from angarium.operations.events.search import EventSearch
from angarium.operations.failures import NotDone
from angarium.operations.ledger_queries.journey import Journey, recorded_journey
from angarium.operations.ledger_queries.ledger_access import LedgerLag

_REMEDIES: Mapping[str, str] = {"resume": "POST {}/resume", "put": "PUT {}"}
"""The requests of the API by the remedies of a live state."""

NO_LEDGER = "the ledger cannot be read"
BEING_SEARCHED = "Where it waits is still being searched."
UNREAD_LEDGER = LedgerLag(as_of=None, behind_s=0.0, gaps=[])
"""Stands for the progress of a ledger that cannot be read."""

JourneyCursor = Annotated[
    str | None,
    QueryParameter(
        pattern=r"^[A-Za-z0-9_-]{1,64}:[0-9]{1,15}$", description="The `next_cursor` of the previous page."
    ),
]


def operation_for(remedy: str | None, receiver: str) -> str | None:
    """The operation of the API that does what an operator has to do for a receiver."""
    tenant, _, name = receiver.partition(".")
    operation = _REMEDIES.get(remedy or "")
    return None if operation is None else operation.format(f"/v1/tenants/{tenant}/receivers/{name}")


class AskedEvent(Struct, frozen=True, kw_only=True):
    """An event that is asked about: a page of at most `limit` of its deliveries, from a cursor on.

    It has fewer deliveries if these have more than `attempts_max` attempts, by default those of the API.
    """

    tenant: str
    event: str
    limit: int
    cursor: str | None = None
    attempts_max: int | None = None

    @property
    def after(self) -> tuple[str, int]:
        """The receiver and the number after which the page begins."""
        name, _, sequence = (self.cursor or "").partition(":")
        return (f"{self.tenant}.{name}", int(sequence)) if self.cursor else ("", 0)


async def journey_of_event(api: ApiState, asked: AskedEvent) -> JourneyPage:
    """A page of the deliveries of an event, and where it still waits. Raises `ProblemRaised`."""
    with api.search_limits.admit(asked.tenant):
        found = await recorded_deliveries(api, asked)
        search = await search_further(api, asked, found)
    return journey_page(asked, found, search)


async def recorded_deliveries(api: ApiState, asked: AskedEvent) -> Journey:
    """The deliveries that the ledger has. Raises `ProblemRaised`, also if that is no event's id."""
    if not is_id(asked.event):
        raise not_found(f"an event's id is {ID_TEXT}")
    return await ask_ledger(
        api,
        asked.tenant,
        lambda ledger: recorded_journey(
            ledger,
            asked.event,
            asked.tenant,
            after=asked.after,
            limit=asked.limit,
            attempts_max=asked.attempts_max,
        ),
    )


async def search_further(api: ApiState, asked: AskedEvent, found: Journey | None) -> EventSearch | NotDone:
    """Search the streams for what was not found in the ledger; None: there is none."""
    return await search_streams(
        api, asked.tenant, asked.event, found.recorded if found else {}, asked.after[0],
        last=found.deliveries[-1]["receiver"] if found and found.more else None,
        why_unrecorded=found.ledger.why_unrecorded if found else lambda _: NO_LEDGER,
    )  # fmt: skip


def journey_page(asked: AskedEvent, found: Journey | None, search: EventSearch | NotDone) -> JourneyPage:
    """The page of what was found in the ledger, if there is one, and in the streams.

    Raises `ProblemRaised` if there is nothing.
    """
    event = asked.event
    if found is None:
        found = Journey(event, [], more=False, ledger=UNREAD_LEDGER)
    if isinstance(search, NotDone):
        if not found.deliveries:
            raise problem_of(search)
        waiting, why_none, notes = None, None, [f"where it waits is not known: {search.text}"]
        erased, due = None, None
    else:
        _check_known(event, found, search)
        waiting, notes = _waiting(found, search), search.notes
        why_none = None if found.deliveries else search.why_none or None
        erased = next((ErasedItem(at=each.at, by=each.by) for each in search.erased), None)
        due = [DueItem(each.due_at, each.accepted_at, each.late_s) for each in search.due]
    return JourneyPage(
        event_id=event, deliveries=_deliveries(found), waiting=waiting,
        why_none=why_none, erased=erased, due=due, notes=notes, next_cursor=_following(found),
        ledger=found.ledger,
    )  # fmt: skip


def being_searched(asked: AskedEvent, found: Journey | None) -> JourneyPage:
    """The page while the streams are being searched."""
    return JourneyPage(
        event_id=asked.event, deliveries=_deliveries(found) if found else [], waiting=None, why_none=None,
        erased=None, due=None, notes=[BEING_SEARCHED], next_cursor=_following(found) if found else None,
        ledger=found.ledger if found else UNREAD_LEDGER,
    )  # fmt: skip


def _deliveries(found: Journey) -> list[DeliveryItem]:
    return msgspec.convert(found.deliveries, list[DeliveryItem])


def _check_known(event: str, found: Journey, search: EventSearch) -> None:
    """Raises `ProblemRaised` with the reasons if neither the ledger nor a stream has the event."""
    if not (found.deliveries or search.waiting or search.stored or search.erased):
        late = [NO_LEDGER] if found.ledger is UNREAD_LEDGER else filter(None, [found.ledger.late])
        reasons = "; ".join((search.why_none, *search.notes, *found.ledger.lacking, *late))
        raise not_found(f"{search.why_unknown(event)}: {reasons}")


def _waiting(found: Journey, search: EventSearch) -> list[WaitingDeliveryItem]:
    """The receivers for which the event waits, each with the operation that is the remedy.

    What was recorded after the search does not wait any more.
    """
    recorded = found.recorded
    return [
        WaitingDeliveryItem(
            receiver=each.receiver, stored_at=each.stored_at, place=each.place, waiting=each.waiting,
            due_s=each.due_s, why=each.why, remedy=operation_for(each.remedy, each.receiver),
            again=each.again or None,
        )
        for each in search.waiting
        if (each.again or None) not in recorded.get(each.receiver, ())
    ]  # fmt: skip


def _following(found: Journey) -> str | None:
    """The cursor of the page after this one."""
    if not found.more:
        return None
    last = found.deliveries[-1]
    return f"{last['receiver'].partition('.')[2]}:{last['sequence']}"
