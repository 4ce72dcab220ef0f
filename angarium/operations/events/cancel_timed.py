"""Cancels a timed event; once that is answered, it is never delivered."""

from typing import assert_never

from msgspec import Struct

from actors.ids import check_tenant
from angarium.access import Access
from angarium.operations.events.list_timed import TimedEvent, timed_event
from angarium.operations.failures import OperationError, operation
from streams.nats.retry import retry_for_command
from streams.timed.entries import CancelledStub, CancelResult, Entry, TakenStub, cancel, events_age_s
from streams.timed.listing import next_trace

CANCELLED_MAX = 1_000
"""Events of one id that are cancelled at a time."""


class CancelledEvents(Struct, frozen=True, kw_only=True):
    """The events that were cancelled: several if one id was published several times.

    `before`: number of those that were cancelled before; `too_late`: of those whose time had come.
    """

    cancelled: list[TimedEvent]
    before: int = 0
    too_late: int = 0


@operation
async def cancel_timed(access: Access, tenant: str, event: str) -> CancelledEvents:
    """Cancel all waiting events of a tenant with this id. Fails as invalid, not_found and refused.

    If more than `CANCELLED_MAX` wait, so many are cancelled, and it fails as refused: ask again.
    """
    check_tenant(tenant)
    found = await _cancel_each(access, tenant, event)
    if found.cancelled or found.before:
        return found
    if found.too_late:
        text = f"event {event} of {tenant} no longer waits: its time had come"
        raise OperationError("refused", text)
    text = f"no event {event} of {tenant} waits for its time; one that was just published may in a moment"
    raise OperationError("not_found", text)


async def _cancel_each(access: Access, tenant: str, event: str) -> CancelledEvents:
    js, names = access.js, access.names
    age_s = await retry_for_command(events_age_s, js, names)
    done, before, too_late, position = list[TimedEvent](), 0, 0, 0
    seen = set[str]()
    """Subjects whose entries were met: each is met again, as a stub."""
    while trace := await retry_for_command(next_trace, js, names, tenant, event, position):
        position = trace.position
        if trace.subject in seen:
            continue
        match trace.what:
            case Entry() as entry:
                if len(seen) == CANCELLED_MAX:
                    text = f"{len(done)} events {event} of {tenant} were cancelled, and more wait"
                    raise OperationError("refused", text, remedy="; cancel it once more")
                seen.add(trace.subject)
                if await retry_for_command(cancel, js, names, entry, access.by, age_s) is CancelResult.DONE:
                    done.append(timed_event(entry))
                else:
                    too_late += 1
            case CancelledStub():
                before += 1
            case TakenStub():
                too_late += 1
            case _:
                assert_never(trace.what)
    return CancelledEvents(cancelled=done, before=before, too_late=too_late)
