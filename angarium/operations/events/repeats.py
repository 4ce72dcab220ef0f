"""Tells a repeated publish of a timed event from one that asks for something else.

JetStream drops both as duplicates, since it compares the message ids alone. The second must not look like a
success: then an event that was to be rescheduled would never be delivered.
"""

from actors.errors import Unavailable
from angarium.access import Access
from angarium.operations.events.message import NewEvent
from angarium.operations.failures import OperationError
from streams.nats.answers import StoredMessage
from streams.nats.errors import ApiError
from streams.nats.wire_names import DELIVER_AT
from streams.routing.fanout import event_of_message
from streams.timed.entries import CancelledStub, due_second, entry_in, id_hash
from streams.timed.timing import parsed_time

OTHER_ID = "use another id, or wait two minutes"


async def repeat_problem(access: Access, event: NewEvent, position: int) -> OperationError | None:
    """The error of a duplicate whose event, stored at `position`, has another time or was cancelled."""
    try:
        why = await _why_no_repeat(access, event, position)
    except (Unavailable, ApiError) as error:
        text = f"an event with this id is stored already, and its time could not be read ({error})"
        return OperationError("unanswered", f"{text}; send it again, or with another id")
    return OperationError("conflict", f"{why}; {OTHER_ID}", "repeated-id") if why else None


async def _why_no_repeat(access: Access, event: NewEvent, position: int) -> str:
    """The difference between the stored event and this one; empty if there is none."""
    stored = await access.js.message(access.names.events, position)
    if stored is None:
        return "an event with this id was published before, and its time is no longer known"
    text = stored.headers.get(DELIVER_AT, "")
    second = _second(text)
    if second is None:
        return "an event with this id was published without a time"
    if second != due_second(event.deliver_at):
        return f"an event with this id waits for another time, {text}, or was cancelled"
    if await _was_cancelled(access, stored, event.tenant, second):
        return "the event with this id was cancelled"
    return ""


def _second(text: str) -> int | None:
    """The full second at which an event with this time becomes due; None without one."""
    at = parsed_time(text)
    return None if at is None else due_second(at)


async def _was_cancelled(access: Access, stored: StoredMessage, tenant: str, second: int) -> bool:
    """True if the entry of a stored event was cancelled; an event that is not routed yet has no entry."""
    js, names = access.js, access.names
    pattern = names.timed_subjects.due_in(
        None, second, 1, tenant, id_hash(event_of_message(names, stored).id)
    )
    addresses = map(names.timed_subjects.address_or_none, await js.subjects(names.later, pattern))
    # A source is the position, or above it once the events have lost their end and were repaired.
    own = [each for each in addresses if each and each.source >= stored.position]
    if not own:
        return False
    subject = names.timed_subjects.entry(min(own, key=lambda each: each.source))
    entry = await js.last_message(names.later, subject)
    return entry is not None and isinstance(entry_in(names, entry), CancelledStub)
