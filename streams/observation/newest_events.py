"""Finds the newest events of a tenant in their stream, which can be read only forwards."""

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from actors.machine.event import Event
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_for_command
from streams.routing.fanout import event_in

FIRST_SPAN_MIN = 256
"""Positions from the end of the stream that are searched at first, at least; then four times as many."""
SEARCHED_MAX = 10_000
"""Events of the tenant that are read."""
SEARCHED_BYTES_MAX = 16 << 20
"""Bytes of their bodies."""
PAGE_EVENTS = 512
PAGE_BYTES = 1 << 20


class NewestEvents(Struct, frozen=True):
    """The newest events, oldest first; `is_cut`: the search ended at a bound, so there may be others."""

    events: list[Event]
    is_cut: bool


class _Reading(Struct):
    """The bytes that may still be read, and whether events were left out because there are too many."""

    bytes: int = SEARCHED_BYTES_MAX
    is_cut: bool = False


async def newest_events(
    js: JetStream, names: Names, tenant: str, count: int, wanted: Callable[[Event], bool]
) -> NewestEvents:
    """The newest `count` events of a tenant that are wanted. Raises `Unavailable` and `ApiError`."""
    info = await retry_for_command(js.existing_stream, names.events)
    found, left, end, span = list[Event](), _Reading(), info.last, max(FIRST_SPAN_MIN, count)
    while len(found) < count and end >= info.first and not left.is_cut:
        start = max(info.first, end - span + 1)
        found = [*await _in_span(js, names, tenant, start, end, count - len(found), wanted, left), *found]
        end, span = start - 1, span * 4
    return NewestEvents(found, left.is_cut)


async def _in_span(
    js: JetStream,
    names: Names,
    tenant: str,
    start: int,
    end: int,
    count: int,
    wanted: Callable[[Event], bool],
    left: _Reading,
) -> deque[Event]:
    """The newest wanted events between two positions."""
    found, subject = deque[Event](maxlen=count), names.events_for(tenant)
    while start <= end:
        page = await retry_for_command(js.read, names.events, subject, start, PAGE_EVENTS, PAGE_BYTES)
        if len(page.messages) + page.pending > SEARCHED_MAX and start < end:
            # So many come from here to the end of the stream; the newest of them are read.
            start, left.is_cut = (start + end + 1) // 2, True
            continue
        for message in page.messages:
            if message.position > end:
                return found
            left.bytes -= len(message.data)
            if not (event := event_in(names, message)).malformed and wanted(event):
                found.append(event)
        if not (page.messages and page.pending):
            return found
        if left.bytes <= 0:
            left.is_cut = True
            return found
        start = page.messages[-1].position + 1
    return found
