"""Records for the verdict: the events published to each receiver, and its own notes."""

from itertools import takewhile

from msgspec import Struct, field

from actors.machine.bucket import RateLimit


class PublishedEvent(Struct, frozen=True):
    """An event as its producer knows it: its id, the SHA-256 of its body, its type."""

    id: str
    digest: bytes
    type: str = ""


class Arrival(Struct, frozen=True, kw_only=True):
    """An event in a request, as its receiver saw it.

    - `at`: seconds by the receiver's own clock, which never jumps.
    - `status`: of the answer; None if the connection was reset.
    - `retry_after_s`: the pause that the answer asked for.
    - `problems`: why its signatures must not be trusted.
    - `again`: set if the event was a dead letter.
    - `place`: 0 for the first event of the request, 1 for the second of a batch, and so on.
    """

    at: float
    event_id: str
    sequence: int
    attempt: int
    digest: bytes
    signature: str
    again: str = ""
    status: int | None = 200
    retry_after_s: float = 0.0
    problems: tuple[str, ...] = ()
    place: int = 0

    @property
    def is_accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def delivery(self) -> tuple[str, str]:
        """The unit that keeps its number: an event, or an event that is sent again."""
        return self.event_id, self.again


class ReceiverRecord(Struct, kw_only=True):
    """The record of one receiver: the published events and the arrivals, each in order.

    - `strict`: one event at a time, in order.
    - `batched`: it gets several events in one request.
    - `must_prove`: it proves itself before the first event; `proved_at`: when it first did.
    - `rejected_attempts`: an event that was refused this often becomes a dead letter; 0: none does.
    - `hidden_limit`: requests beyond so many a second were answered 429; 0: it has no such limit.
    - `began_at`: nothing was sent to it before this time, by the clock of the arrivals.
    """

    name: str
    limit: RateLimit | None = None
    strict: bool = True
    batched: bool = False
    must_prove: bool = False
    proved_at: float | None = None
    rejected_attempts: int = 0
    hidden_limit: int = 0
    published: list[PublishedEvent] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    began_at: float = 0.0

    @property
    def accepted(self) -> set[str]:
        """The ids of the events that were answered with 2xx."""
        return {arrival.event_id for arrival in self.arrivals if arrival.is_accepted}

    @property
    def given_up(self) -> set[str]:
        """The ids of the events that were refused so often that they become dead letters."""
        return {arrival.event_id for arrival in self.arrivals if self.gives_up(arrival)}

    def gives_up(self, arrival: Arrival) -> bool:
        """True if this was the last attempt before the event becomes a dead letter."""
        return arrival.status == 422 and arrival.attempt == self.rejected_attempts

    @property
    def is_complete(self) -> bool:
        """True if everything that was published arrived and was accepted."""
        return self.accepted >= {event.id for event in self.published}

    @property
    def requests(self) -> list[Arrival]:
        """The first event of each request."""
        return [arrival for arrival in self.arrivals if not arrival.place]

    @property
    def is_overtaken(self) -> bool:
        """True if events pass one that failed: not where a refusal is about the receiver as a whole."""
        return not self.strict and not self.hidden_limit

    def accepted_since(self, at: float) -> int:
        """The number of requests that were accepted since a time."""
        return sum(each.is_accepted for each in takewhile(lambda each: each.at > at, self.requests[::-1]))

    @property
    def repeats(self) -> int:
        """Arrivals beyond the first of each event."""
        return len(self.arrivals) - len({arrival.event_id for arrival in self.arrivals})
