"""Checks that each timed event is routed once, for all who want it, unless it was cancelled before."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from streams.installation.topology import Names
from tests.sim.server.streams.store import Stored
from tests.sim.world.world import World

DUE, DELIVER_AT, CANCELLED, SOURCE = (
    "Angarium-Due", "Angarium-Deliver-At", "Angarium-Cancelled", "Angarium-Source",
)  # fmt: skip


class Timed(Struct):
    """A timed event, known by its body.

    - `due`: the positions at which it was published again; `due_at`: when that happened first.
    - `is_stored`: it had an entry.
    - `source`: that of its copies; all have one, and it is the position of a due event.
    - `given`: the receivers that have a copy that counts.
    """

    tenant: str
    type: str
    body: bytes
    region: str
    published_at: float
    due: set[int]
    due_at: float = 0.0
    is_stored: bool = False
    source: int = 0
    given: set[str] = set()
    cancelled: bool = False


def _waits(message: Stored) -> bool:
    """True if the event asks for a time that is not over, by the server's clock."""
    text = (message.headers or {}).get(DELIVER_AT)
    return text is not None and datetime.fromisoformat(text).timestamp() > message.at_ns / 1e9


class TimedEvents:
    """The checker of one run. `wants`: returns the receivers that certainly want an event since a time."""

    def __init__(self, world: World, names: Names, wants: Callable[["Timed", float], Sequence[str]]) -> None:
        self._world = world
        self._names = names
        self._wants = wants
        self.by_body: dict[bytes, Timed] = {}
        self._bodies: dict[str, bytes] = {}
        self._unrouted: dict[int, tuple[int, str]] = {}
        self._originals: dict[int, Timed] = {}

    def published(self, message: Stored) -> bool:
        """Hear of a message of the events; returns whether it is a timed event, or a due one."""
        headers = message.headers or {}
        if DUE not in headers and not _waits(message):
            return False
        _, _, partition, tenant, event_type = message.subject.split(".", 4)
        self._unrouted[message.sequence] = int(partition), tenant
        if DELIVER_AT in headers:
            event = self._originals[message.sequence] = Timed(
                tenant, event_type, message.data, headers.get("Angarium-Region", ""), self._world.now, set()
            )
            self.by_body[message.data] = event
        else:
            self._world.say("due event %d", message.sequence)
            event = self.by_body[message.data]
            event.due_at = event.due_at or self._world.now
            event.due.add(message.sequence)
        return True

    def routed(self, partition: int, up_to: int, parked: Mapping[str, int]) -> None:
        """Hear of what is routed, as the journal says."""
        for position, (of_partition, tenant) in list(self._unrouted.items()):
            if of_partition == partition and position <= up_to and position < parked.get(tenant, up_to + 1):
                del self._unrouted[position]
                self._check_stored(self._originals.get(position))

    def _check_stored(self, event: Timed | None) -> None:
        """Check that an event that is routed has an entry, or dead letters if a full stream gave it up."""
        if event is None or event.is_stored or event.given:
            return
        if self._wants(event, event.published_at):
            self._world.fail(f"{event} is routed, and is stored nowhere")

    def entry(self, message: Stored) -> None:
        """Hear of an entry or a stub."""
        if message.data:
            self._bodies[message.subject] = message.data
            self.by_body[message.data].is_stored = True
        elif CANCELLED in (message.headers or {}):
            self.by_body[self._bodies[message.subject]].cancelled = True

    def copied(self, receiver: str, message: Stored, *, counts: bool) -> None:
        """Hear of a copy of such an event, and judge it; if it counts, its receiver gets the event."""
        event, source = self.by_body[message.data], int((message.headers or {})[SOURCE])
        self._world.say("copy of due event %d for %s", source, receiver)
        if event.cancelled:
            self._world.fail(f"{receiver} gets an event that was cancelled: {message.data!r}")
        if source not in event.due:
            self._world.fail(f"{receiver}: a copy of {message.data!r} is of {source}, which is not due")
        if event.source not in (0, source):
            self._world.fail(f"{message.data!r} is routed twice, from {event.source} and {source}")
        event.source = source
        if counts:
            event.given.add(receiver)

    def buried(self, receiver: str, message: Stored) -> None:
        """Hear of a dead letter in place of a copy: a full stream gave the event up."""
        self.by_body[message.data].given.add(receiver)

    def unsettled(self) -> str:
        """Says in a sentence which event is still to be routed, or nothing."""
        for position in self._unrouted:
            return f"the timed event at {position} is not routed"
        for body, event in self.by_body.items():
            if event.is_stored and not event.due and not event.cancelled:
                return f"{body!r} waits for its time"
            if not event.due:
                continue
            missing = set(self._wants(event, event.due_at)) - event.given
            if missing and not event.cancelled:
                return f"{body!r}, which waited for its time, has not reached {sorted(missing)}"
        return ""
