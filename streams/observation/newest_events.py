"""Finds the newest events of a tenant in their stream, which can be read only forwards."""

from collections import deque
from collections.abc import Callable
from itertools import count

from msgspec import Struct

from actors.machine.event import Event
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_for_command
from streams.routing.fanout import event_of_message

FIRST_SPAN = 256
"""Positions from the end of the stream that are searched at first; then four times as many, and so on."""
SEARCHED_MAX = 10_000
"""Events of the tenant that are read."""
READ_BYTES_MAX = 64 << 20
"""Bytes of the bodies that are read, of which the newest are kept."""
KEPT_BYTES_MAX = 16 << 20
PAGE_EVENTS = 512
PAGE_BYTES = 1 << 20


class NewestEvents(Struct, frozen=True):
    """The newest events, oldest first; `is_cut`: the search ended at a bound, so there may be others."""

    events: list[Event]
    is_cut: bool


async def newest_events(
    js: JetStream, names: Names, tenant: str, events_max: int, wanted: Callable[[Event], bool]
) -> NewestEvents:
    """The newest events of a tenant that are wanted. Raises `Unavailable` and `ApiError`."""
    info = await retry_for_command(js.existing_stream, names.events)
    search = _Search(js, names, tenant, events_max, wanted)
    end = info.last
    for step in count():
        if search.is_over or end < info.first:
            break
        start = max(info.first, end - FIRST_SPAN * 4**step + 1)
        await search.add_span(start, end)
        end = start - 1
    return NewestEvents(list(search.found), search.is_cut)


class _Search:
    """A search from the end of the stream, span by span."""

    def __init__(
        self, js: JetStream, names: Names, tenant: str, events_max: int, wanted: Callable[[Event], bool]
    ) -> None:
        self.found = deque[Event]()
        self.is_cut = False
        self._js = js
        self._names = names
        self._subject = names.events_for(tenant)
        self._events_max = events_max
        self._wanted = wanted
        self._read_bytes = self._kept_bytes = 0

    @property
    def is_over(self) -> bool:
        """True if enough was found, or a bound was reached."""
        return self.is_cut or len(self.found) >= self._events_max

    async def add_span(self, start: int, end: int) -> None:
        """Add the wanted events between two positions, which are older than all that were found."""
        newer, self.found, position = self.found, deque[Event](), start
        while position <= end:
            page = await retry_for_command(
                self._js.read, self._names.events, self._subject, position, PAGE_EVENTS, PAGE_BYTES
            )
            if len(page.messages) + page.pending > SEARCHED_MAX and position < end:
                # So many come from here to the end of the stream; the newest of them are read.
                position, self.is_cut = (position + end + 1) // 2, True
                continue
            for message in page.messages:
                if message.position <= end:
                    self._take(message, self._events_max - len(newer))
            if self._read_bytes > READ_BYTES_MAX:
                # Those that would come next are newer than what was found here.
                self.found.clear()
                self.is_cut = True
            if self._read_bytes > READ_BYTES_MAX or not (page.messages and page.pending):
                break
            position = page.messages[-1].position + 1
        self.found += newer

    def _take(self, message: StoredMessage, events_max: int) -> None:
        """Keep an event that is newer than those of its span that were found before."""
        self._read_bytes += len(message.data)
        event = event_of_message(self._names, message)
        if event.malformed or not self._wanted(event):
            return
        self.found.append(event)
        self._kept_bytes += len(event.body)
        while len(self.found) > events_max or (self._kept_bytes > KEPT_BYTES_MAX and len(self.found) > 1):
            self.is_cut = self.is_cut or len(self.found) <= events_max
            self._kept_bytes -= len(self.found.popleft().body)
