"""Cancels an event that waits for its time; once that is answered, it is never delivered."""

from msgspec import Struct

from actors.ids import check_tenant
from angarium.access import Access
from angarium.operations.events.list_later import LaterEvent, later_event
from angarium.operations.failures import OperationError, operation
from streams.later.entries import Cancelling, cancel, events_age_s
from streams.later.listing import entries_of_event, has_trace
from streams.nats.retry import retry_for_command


class CancelledEvents(Struct, frozen=True, kw_only=True):
    """The events that were cancelled: several if one id was published several times.

    `too_late`: number of those that were taken at the same moment.
    """

    cancelled: list[LaterEvent]
    too_late: int = 0


@operation
async def cancel_later(access: Access, tenant: str, event: str) -> CancelledEvents:
    """Cancel all waiting events of a tenant with this id. Fails as invalid, not_found and refused."""
    check_tenant(tenant)
    js, names = access.js, access.names
    age_s = await retry_for_command(events_age_s, js, names)
    done, too_late = list[LaterEvent](), 0
    for entry in await retry_for_command(entries_of_event, js, names, tenant, event):
        match await retry_for_command(cancel, js, names, entry, access.by, age_s):
            case Cancelling.DONE:
                done.append(later_event(entry))
            case Cancelling.TOO_LATE:
                too_late += 1
    if done:
        return CancelledEvents(cancelled=done, too_late=too_late)
    if too_late or await retry_for_command(has_trace, js, names, tenant, event):
        text = f"event {event} of {tenant} no longer waits: its time had come, or it was cancelled before"
        raise OperationError("refused", text, "too-late")
    raise OperationError("not_found", f"no event {event} of {tenant} waits for its time")
