"""Shows what a replay would send, and sends nothing."""

from collections import Counter

from msgspec import Struct, field

from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.operations.failures import operation
from angarium.operations.replays.resendable import ReplayFilter, find_resendable
from streams.reading.messages import stored_event
from streams.resending.copies import pages_between

TYPES_SHOWN_MAX = 20
OTHERS = "(others)"


class PreviewBounds(Struct, frozen=True, kw_only=True):
    """The number of events that a preview reads, wanted or not, and of their bytes."""

    events_max: int
    bytes_max: int


class Preview(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The events that a replay would send. Times are RFC 3339.

    `kept_since`: the stream begins only there; earlier events of the period no longer exist.
    `left_out` counts those that would not be sent, by reason: `not_settled_yet`. `more`: a bound was reached,
    and there may be more than these.
    """

    receiver: str
    events: int
    bytes: int
    types: dict[str, int]
    oldest_at: str | None
    newest_at: str | None
    kept_since: str | None
    left_out: dict[str, int] = field(name="left")
    more: bool = False


@operation
async def preview(
    access: Access, receiver: str, wanted: ReplayFilter, bounds: PreviewBounds | None = None
) -> Preview:
    """Find out what a replay would send, and send nothing. Fails as not_found and invalid."""
    found = await find_resendable(access, receiver, wanted)
    types: Counter[str] = Counter()
    size, oldest, newest = 0, None, None
    read, read_bytes, more = 0, 0, False
    subject, events = access.names.deliveries_to(receiver), found.events
    async for page in pages_between(access.js, access.names, subject, events.begin, events.until):
        for event in filter(events.takes, map(stored_event, page)):
            known = event.type in types or len(types) < TYPES_SHOWN_MAX
            types[event.type if known else OTHERS] += 1
            size += len(event.body)
            oldest, newest = oldest or instant_text(event.stored_at), instant_text(event.stored_at)
        read, read_bytes = read + len(page), read_bytes + sum(len(each.data) for each in page)
        if bounds and (read >= bounds.events_max or read_bytes >= bounds.bytes_max):
            more = page[-1].position < events.until
            break
    return Preview(
        receiver=receiver, events=types.total(), bytes=size, types=dict(types), oldest_at=oldest,
        newest_at=newest, kept_since=found.kept_since_text, left_out=found.left_out, more=more,
    )  # fmt: skip
