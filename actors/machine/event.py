"""An event as an actor holds it: its position in the stream, its id and its content."""

from msgspec import Struct

from actors.ids import dedup_key


class Event(Struct, frozen=True, gc=False, kw_only=True):
    """One message of the deliveries stream, addressed to one receiver.

    `position` is its stream sequence, `stored_at` the stream's time (seconds since the epoch), `source` the
    sequence of the event that the router copied it from (0 for a direct send), `again` what a replay or a
    redrive was marked with. `traceparent` and `tracestate` are as published. `malformed` says why the message
    cannot be passed on as it was published; such an event becomes a dead letter when its turn comes.
    """

    position: int
    id: str
    stored_at: float
    body: bytes
    type: str = "message"
    again: str = ""
    source: int = 0
    content_type: str = "application/json"
    traceparent: str = ""
    tracestate: str = ""
    malformed: str = ""

    @property
    def key(self) -> bytes:
        """The key of the event in the dedup window."""
        return dedup_key(self.id, self.again)

    @property
    def size(self) -> int:
        """Bytes of memory that the event takes, near enough."""
        return len(self.body) + 512
