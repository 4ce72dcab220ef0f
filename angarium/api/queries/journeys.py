"""The journey of an event: what the ledger recorded, and what the streams still have of it."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from litestar.params import QueryParameter

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

_REMEDIES: Mapping[str, str] = {"resume": "POST {}/resume", "put": "PUT {}"}
"""The requests of the API by the remedies of a live state."""

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


async def journey_of_event(
    api: ApiState, tenant: str, event: str, limit: int, cursor: str | None
) -> JourneyPage:
    """A page of the deliveries of an event, and where it still waits. Raises `ProblemRaised`."""
    if not is_id(event):
        raise not_found(f"an event's id is {ID_TEXT}")
    name, _, sequence = (cursor or "").partition(":")
    after = (f"{tenant}.{name}", int(sequence)) if cursor else ("", 0)
    with api.search_limits.admit(tenant):
        found = await ask_ledger(
            api, tenant, lambda ledger: recorded_journey(ledger, event, tenant, after=after, limit=limit)
        )
        last = found.deliveries[-1]["receiver"] if found.more else None
        why_unrecorded = found.ledger.why_unrecorded
        search = await search_streams(api, tenant, event, found.recorded, after[0], last, why_unrecorded)
    if isinstance(search, NotDone):
        if not found.deliveries:
            raise problem_of(search)
        waiting, why_none, notes = None, None, [f"where it waits is not known: {search.text}"]
        erased, due = None, None
    else:
        _check_known(event, found, search)
        waiting, why_none, notes = _waiting(search), search.why_none or None, search.notes
        erased = next((ErasedItem(at=each.at, by=each.by) for each in search.erased), None)
        due = [DueItem(each.due_at, each.accepted_at, each.late_s) for each in search.due]
    return JourneyPage(
        event_id=event, deliveries=msgspec.convert(found.deliveries, list[DeliveryItem]), waiting=waiting,
        why_none=why_none, erased=erased, due=due, notes=notes, next_cursor=_following(found),
        ledger=found.ledger,
    )  # fmt: skip


def _check_known(event: str, found: Journey, search: EventSearch) -> None:
    """Raises `ProblemRaised` with the reasons if neither the ledger nor a stream has the event."""
    if not (found.deliveries or search.waiting or search.stored or search.erased):
        late = filter(None, [found.ledger.late])
        reasons = "; ".join((search.why_none, *search.notes, *found.ledger.lacking, *late))
        raise not_found(f"{search.why_unknown(event)}: {reasons}")


def _waiting(search: EventSearch) -> list[WaitingDeliveryItem]:
    """The receivers for which the event waits, each with the operation that is the remedy."""
    return [
        WaitingDeliveryItem(
            receiver=each.receiver, stored_at=each.stored_at, place=each.place, waiting=each.waiting,
            due_s=each.due_s, why=each.why, remedy=operation_for(each.remedy, each.receiver),
            again=each.again or None,
        )
        for each in search.waiting
    ]  # fmt: skip


def _following(found: Journey) -> str | None:
    """The cursor of the page after this one."""
    if not found.more:
        return None
    last = found.deliveries[-1]
    return f"{last['receiver'].partition('.')[2]}:{last['sequence']}"
