"""Events in the memory of a router, and those whose copies are all stored: what is said of them, and when.

Something may have to be done once an event is routed and the journal says so, such as exporting a span.
"""

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from actors.machine.event import Event
from streams.journal.routing_progress import RoutingProgress
from streams.nats.protocol import SharedHeaders
from streams.routing.fanout import copy_headers
from streams.routing.selection.receiver_selection import ReceiverSelection

UNRECORDED_MAX = 4096
"""Routed events of a partition that are kept until that is recorded, some 500 bytes each."""


class RoutedEvent(Struct, frozen=True, gc=False, kw_only=True):
    """An event whose copies are all stored.

    - `source`: the position that its copies name.
    - `type`: empty if the event is malformed, since it may be anything then.
    - `copies`: the number of receivers that it was copied to.
    """

    tenant: str
    id: str
    source: int
    stored_at: float
    type: str
    traceparent: str
    malformed: bool
    copies: int


class UnrecordedRoutings:
    """Routed events that the journal does not hold as routed yet, each with a call to be made once it does.

    If an owner dies before that, the next one routes the event again.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, int, Callable[[], None]]] = deque()

    def add(self, tenant: str, position: int, when_recorded: Callable[[], None]) -> None:
        """Add an event. If too many wait, the oldest call is made now: after a crash it may be made again."""
        self._waiting.append((tenant, position, when_recorded))
        if len(self._waiting) > UNRECORDED_MAX:
            self._waiting.popleft()[2]()

    def recorded(self, progress: RoutingProgress) -> None:
        """Make the calls of the events that this recorded progress covers."""
        for _ in range(len(self._waiting)):
            tenant, position, when_recorded = waiting = self._waiting.popleft()
            if progress.covers(tenant, position):
                when_recorded()
            else:
                self._waiting.append(waiting)


class EventInMemory:
    """An event that is not matched yet, or has unconfirmed copies."""

    __slots__ = (
        "came_at",
        "copies",
        "event",
        "headers",
        "position",
        "selection",
        "size",
        "tenant",
        "unconfirmed",
    )  # fmt: skip

    def __init__(self, tenant: str, event: Event, source: int, came_at: float) -> None:
        self.tenant = tenant
        self.event = event
        self.position = event.position
        self.came_at = came_at
        self.selection: ReceiverSelection | None = None
        headers = copy_headers(event, source)
        self.headers = headers if event.malformed else SharedHeaders(headers)
        self.copies = self.unconfirmed = 0
        self.size = event.size


def routed_event(waiting: EventInMemory, source: int) -> RoutedEvent:
    """The event, now that its copies are stored, which name that source."""
    event = waiting.event
    return RoutedEvent(
        tenant=waiting.tenant,
        id=event.id,
        source=source,
        stored_at=event.stored_at,
        type="" if event.malformed else event.type,
        traceparent=event.traceparent,
        malformed=bool(event.malformed),
        copies=0 if event.malformed else waiting.copies,
    )
