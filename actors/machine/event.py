"""An event as an actor holds it: its position in the stream, its id and its content."""

from msgspec import Struct

from actors.ids import dedup_key

EVENT_BYTES = 512
"""Approximate bytes of memory that an event takes in addition to its body."""


class Event(Struct, frozen=True, gc=False, kw_only=True):
    """One message of the deliveries stream, addressed to one receiver.

    - `position`: its place in the stream.
    - `stored_at`: when the stream stored it, in seconds since the epoch.
    - `published_at`: for a copy, when the original was published, if that was well before.
    - `again`: the mark of a replay or a redrive; empty for the original.
    - `source`: position of the event that the router copied it from; 0 for a direct send.
    - `traceparent`, `tracestate`: the trace headers as published.
    - `region`: the region that its data belongs to; empty if the producer named none.
    - `about`: the receiver that the event is about, if it is about an alert and not a copy.
    - `deliver_at`: the time for which the event waits, in seconds since the epoch; 0 if it has come.
    - `due`: where an event waited whose time has come; empty for others.
    - `only_for`: the name of the only receiver that gets it, if it asked for a time; not on a copy.
    - `malformed`: why the message cannot be passed on as it was published; such an event becomes a dead
      letter when its turn comes.
    - `unshapeable`: its body cannot be shaped as the configuration asks, which an attempt found out; such an
      event becomes a dead letter, too.
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
    published_at: float = 0.0
    about: str = ""
    region: str = ""
    unshapeable: bool = False
    deliver_at: float = 0.0
    due: str = ""
    only_for: str = ""

    @property
    def accepted_at(self) -> float:
        """When the event was accepted from its producer."""
        return self.published_at or self.stored_at

    @property
    def trace_id(self) -> str:
        """The id of the producer's trace, for the log; empty if it sent none."""
        return self.traceparent[3:35]

    @property
    def no_attempt(self) -> str:
        """The reason to give it up without an attempt; empty if there is none."""
        return "malformed" if self.malformed else "transform" if self.unshapeable else ""

    @property
    def key(self) -> bytes:
        """The key of the event in the dedup window."""
        return dedup_key(self.id, self.again)

    @property
    def size(self) -> int:
        """Bytes of memory that the event takes, approximately."""
        return len(self.body) + EVENT_BYTES
