"""Cancels an event that waits for its time; once that is answered, it is never delivered."""

from typing import assert_never

from msgspec import Struct

from actors.ids import check_tenant
from angarium.access import Access
from angarium.operations.events.list_later import LaterEvent, later_event
from angarium.operations.failures import OperationError, operation
from streams.nats.retry import retry_for_command
from streams.timed.entries import Cancelled, Cancelling, Entry, Taken, cancel, events_age_s
from streams.timed.listing import traces_of_event


class CancelledEvents(Struct, frozen=True, kw_only=True):
    """The events that were cancelled: several if one id was published several times.

    `before`: number of those that were cancelled before; `too_late`: of those whose time had come.
    """

    cancelled: list[LaterEvent]
    before: int = 0
    too_late: int = 0


@operation
async def cancel_later(access: Access, tenant: str, event: str) -> CancelledEvents:
    """Cancel all waiting events of a tenant with this id. Fails as invalid, not_found and refused."""
    check_tenant(tenant)
    js, names = access.js, access.names
    age_s = await retry_for_command(events_age_s, js, names)
    done, before, too_late = list[LaterEvent](), 0, 0
    for trace in await retry_for_command(traces_of_event, js, names, tenant, event):
        match trace:
            case Entry():
                ended = await retry_for_command(cancel, js, names, trace, access.by, age_s)
                if ended is Cancelling.DONE:
                    done.append(later_event(trace))
                else:
                    too_late += 1
            case Cancelled():
                before += 1
            case Taken():
                too_late += 1
            case _:
                assert_never(trace)
    if done or before:
        return CancelledEvents(cancelled=done, before=before, too_late=too_late)
    if too_late:
        text = f"event {event} of {tenant} no longer waits: its time had come"
        raise OperationError("refused", text)
    text = f"no event {event} of {tenant} waits for its time; one that was just published may in a moment"
    raise OperationError("not_found", text)
