"""What must hold of events for all who subscribe: who gets a copy, in which order, and when it is acked.

A copy *counts* if its source is above that of every copy of its receiver that was stored before; actors drop
the others. So the stream alone tells what a receiver is given of an event: the ledger holds actors to it.

A change of subscriptions holds for events that are published more than a second after it; which of the two
holds for events from before, and for those that come within that second, is the product's to say.
"""

import msgspec
from msgspec import Struct

from streams.installation.topology import Names
from tests.sim.server.store import Stored
from tests.sim.server.subjects import covers
from tests.sim.world import World

CHANGE_MAX_S = 1.0
"""How long a change of subscriptions may take."""

TYPES = ("order", "order.created", "order.paid", "user.created")
PATTERNS = (">", "order", "order.>", "*.created", "user.*", "order.paid")
MALFORMED = ("angarium.mine", "order.$")
"""Types that nobody may publish; a producer publishes of these and of `TYPES` only."""


class Published(Struct, frozen=True):
    """An event that JetStream accepted. `again`: it is sent again, so its copies have no source."""

    tenant: str
    type: str
    body: bytes
    at: float
    again: bool


class Fanout:
    """The checker of one run; `events` are all that were accepted, by position."""

    def __init__(self, world: World, names: Names) -> None:
        self.world = world
        self.names = names
        self.events: dict[int, Published] = {}
        self._by_body: dict[bytes, int] = {}
        self._unacked: dict[int, None] = {}
        self._versions: dict[str, list[tuple[float, tuple[str, ...]]]] = {}
        self._highest: dict[str, int] = {}
        self._given: set[tuple[str, int]] = set()
        self._letters: set[tuple[str, bytes]] = set()

    # ---- what the server stores

    def stored(self, stream: str, message: Stored) -> None:
        """Hear of it, and judge it."""
        names = self.names
        if stream == names.events:
            self._publish(message)
        elif stream == names.receivers:
            self._configure(message)
        elif stream == names.deliveries and message.data in self._by_body:
            self._copy(message.subject.split(".", 3)[3], message)
        elif stream == names.dead_letters:
            self._letters.add((message.subject.split(".", 2)[2], message.data))

    def _publish(self, message: Stored) -> None:
        _, _, _, tenant, event_type = message.subject.split(".", 4)
        again = "Angarium-Again" in (message.headers or {})
        event = Published(tenant, event_type, message.data, self.world.now, again)
        self.events[message.sequence] = event
        self._by_body[message.data] = message.sequence
        self._unacked[message.sequence] = None
        self.world.say("event %d of %s: %s", message.sequence, tenant, event_type)

    def _configure(self, message: Stored) -> None:
        receiver = message.subject.split(".", 2)[2]
        patterns = msgspec.json.decode(message.data).get("events", [">"]) if message.data else ()
        self._versions.setdefault(receiver, []).append((self.world.now, tuple(patterns)))

    def _copy(self, receiver: str, message: Stored) -> None:
        position = self._by_body[message.data]
        event, headers = self.events[position], message.headers or {}
        self.world.say("copy of %d for %s", position, receiver)
        if not any(self._wanted(receiver, event)):
            self.world.fail(f"{receiver} is sent the event at {position} ({event.type}), and wants it not")
        if headers.get("Angarium-Type") != event.type:
            self.world.fail(f"{receiver}: the copy of {position} has type {headers.get('Angarium-Type')}")
        source = int(headers.get("Angarium-Source", "0"))
        if source != (0 if event.again else position):
            self.world.fail(f"{receiver}: the copy of {position} says that it comes from {source}")
        if event.again:
            self._given.add((receiver, position))
        elif source > self._highest.get(receiver, 0):
            self._highest[receiver] = source
            self._given.add((receiver, position))

    # ---- acks, and the end

    def acked(self, position: int) -> None:
        """The server has got an ack of an event: whoever has to get it must have been given it by now."""
        if position not in self._unacked:
            return
        del self._unacked[position]
        event = self.events[position]
        if event.type in MALFORMED:
            if (f"{event.tenant}._events", event.body) not in self._letters:
                self.world.fail(f"the event at {position} is acked, malformed and has no letter")
            return
        for receiver in self._versions:
            if all(self._wanted(receiver, event)) and (receiver, position) not in self._given:
                self.world.fail(f"the event at {position} is acked, and {receiver} has no copy that counts")

    def unsettled(self) -> str:
        """What is still to be routed, in a sentence, or nothing."""
        for position in self._unacked:
            return f"the event at {position} is not routed: {self.events[position]}"
        return ""

    def _wanted(self, receiver: str, event: Published) -> list[bool]:
        """Whether the receiver wants it, by each configuration that may have been taken for it until now."""
        if event.type in MALFORMED or not receiver.startswith(f"{event.tenant}."):
            return [False]
        versions = [(0.0, ()), *self._versions.get(receiver, [])]
        last = max(n for n, (since, _) in enumerate(versions) if since <= max(0.0, event.at - CHANGE_MAX_S))
        return [any(covers(each, event.type) for each in patterns) for _, patterns in versions[last:]]
