"""Checks of events for all subscribers: who gets a copy, in which order, and when an event is routed.

A copy *counts* if its source is above that of every copy of its receiver that was stored before; actors drop
the others. So the stream alone tells what a receiver is given of an event: `FoldedJournal` holds actors to
it.

An event that is evicted before it is routed has a letter for each of them in place of a copy.

Who wants an event is judged by `tests.sim.selection.checks`. A change of subscriptions holds for events that
are published more than a second after it; which of the two holds for events from before, and for those that
come within that second, is the product's to say.
"""

from collections.abc import Mapping

from msgspec import Struct

from streams.installation.topology import Names
from tests.sim.selection.checks import NOTHING, Wish, wish_of
from tests.sim.server.streams.store import Stored
from tests.sim.timed.checks import Timed, TimedEvents
from tests.sim.world.world import World

CHANGE_MAX_S = 1.0
"""Time that a change of subscriptions may take."""

TYPES = ("order", "order.created", "order.paid", "user.created")
PATTERNS = (">", "order", "order.>", "*.created", "user.*", "order.paid")
MALFORMED = ("angarium.mine", "order.$")
"""Types that may not be published; a producer publishes of these and of `TYPES` only."""


class Published(Struct, frozen=True):
    """An event that JetStream accepted. `again`: it is sent again, so its copies have no source.

    `about`: the receiver that it is about, if it is about an alert.
    """

    partition: int
    tenant: str
    type: str
    body: bytes
    at: float
    again: bool
    about: str = ""
    region: str = ""


class Fanout:
    """The checker of one run; `events` are all that were accepted, by position."""

    def __init__(self, world: World, names: Names) -> None:
        self.world = world
        self.names = names
        self.events: dict[int, Published] = {}
        self._by_body: dict[bytes, int] = {}
        self._unrouted: dict[int, None] = {}
        self._versions: dict[str, list[tuple[float, Wish]]] = {}
        self._highest: dict[str, int] = {}
        self.given: set[tuple[str, int]] = set()
        self._letters: set[tuple[str, bytes]] = set()
        self.given_up: dict[str, set[int]] = {}
        self.purges_by_subject = 0
        self.timed = TimedEvents(world, names, self._certainly_wanting)

    # ---- what the server stores

    def stored(self, stream: str, message: Stored) -> None:
        """Hear of it, and judge it."""
        names = self.names
        if stream == names.events:
            if not self.timed.published(message):
                self._publish(message)
        elif stream == names.later:
            self.timed.entry(message)
        elif stream == names.deliveries and message.data in self.timed.by_body:
            receiver = message.subject.split(".", 3)[3]
            self.timed.copied(receiver, message, counts=self._counts(receiver, message))
        elif stream == names.receivers:
            self._configure(message)
        elif stream == names.deliveries and message.data in self._by_body and not self._is_resent(message):
            self._copy(message.subject.split(".", 3)[3], message)
        elif stream == names.dead_letters:
            receiver = message.subject.split(".", 2)[2]
            if message.data in self.timed.by_body:
                self.timed.buried(receiver, message)
            else:
                self._letter(receiver, message)

    def _is_resent(self, message: Stored) -> bool:
        """True for a copy that a job sends, not the router: its mark is not that of the event."""
        event = self.events[self._by_body[message.data]]
        return "Angarium-Again" in (message.headers or {}) and not event.again

    def _publish(self, message: Stored) -> None:
        _, _, partition, tenant, event_type = message.subject.split(".", 4)
        again = "Angarium-Again" in (message.headers or {})
        about, region = ((message.headers or {}).get(f"Angarium-{name}", "") for name in ("About", "Region"))
        event = Published(
            int(partition), tenant, event_type, message.data, self.world.now, again, about, region
        )
        self.events[message.sequence] = event
        self._by_body[message.data] = message.sequence
        self._unrouted[message.sequence] = None
        self.world.say("event %d of %s: %s", message.sequence, tenant, event_type)

    def _configure(self, message: Stored) -> None:
        receiver = message.subject.split(".", 2)[2]
        self._versions.setdefault(receiver, []).append((self.world.now, wish_of(message.data)))

    def _copy(self, receiver: str, message: Stored) -> None:
        position = self._by_body[message.data]
        event, headers = self.events[position], message.headers or {}
        self.world.say("copy of %d for %s", position, receiver)
        if not any(self._wanted(receiver, event)):
            self.world.fail(f"{receiver} is sent the event at {position} ({event.type}), and wants it not")
        if headers.get("Angarium-Type") != event.type:
            self.world.fail(f"{receiver}: the copy of {position} has type {headers.get('Angarium-Type')}")
        if headers.get("Angarium-Region", "") != event.region:
            self.world.fail(f"{receiver}: the copy of {position} is not of region {event.region!r}")
        source = int(headers.get("Angarium-Source", "0"))
        if source != (0 if event.again else position):
            self.world.fail(f"{receiver}: the copy of {position} says that it comes from {source}")
        if event.again or self._counts(receiver, message):
            self.given.add((receiver, position))

    def _counts(self, receiver: str, message: Stored) -> bool:
        """True for a copy whose source is above that of every copy of the receiver before."""
        source = int((message.headers or {}).get("Angarium-Source", "0"))
        before = self._highest.get(receiver, 0)
        self._highest[receiver] = max(before, source)
        return source > before

    def _letter(self, receiver: str, message: Stored) -> None:
        self._letters.add((receiver, message.data))
        headers = message.headers or {}
        number = headers["Nats-Msg-Id"].removeprefix(f"{receiver}:")
        if not number.startswith("e") or headers["Angarium-Reason"] == "malformed":
            return
        position = int(number[1:])
        event = self.events[position]
        self.world.say("letter of %d for %s", position, receiver)
        if event.body != message.data or headers["Angarium-Type"] != event.type:
            self.world.fail(f"{receiver}: its letter of the event at {position} is not of {event}")
        if not any(self._wanted(receiver, event)):
            self.world.fail(f"{receiver} has a letter of the event at {position}, and wants it not")
        if position not in self._unrouted:
            self.world.fail(f"{receiver} has a letter of the event at {position}, which is routed")
        self.given_up.setdefault(receiver, set()).add(position)

    # ---- what is routed, and the end

    def routed(self, partition: int, up_to: int, parked: Mapping[str, int]) -> None:
        """Checks, when the journal says so, that all receivers of these events have been given them."""
        self.timed.routed(partition, up_to, parked)
        for position in [each for each in self._unrouted if each <= up_to]:
            event = self.events[position]
            if event.partition == partition and position < parked.get(event.tenant, position + 1):
                self._check_routed(position)

    def _check_routed(self, position: int) -> None:
        del self._unrouted[position]
        event = self.events[position]
        if event.type in MALFORMED:
            if (f"{event.tenant}._events", event.body) not in self._letters:
                self.world.fail(f"the event at {position} is routed, malformed and has no letter")
            return
        for receiver in self._versions:
            has_any = (receiver, position) in self.given or position in self.given_up.get(receiver, ())
            if all(self._wanted(receiver, event)) and not has_any:
                self.world.fail(f"the event at {position} is routed, and {receiver} has no copy that counts")

    def purged(self, first: int) -> None:
        """Checks that all events below `first` were routed before they are purged."""
        for position in [each for each in self._unrouted if each < first]:
            self.world.fail(f"the event at {position} is purged and not routed: {self.events[position]}")

    def purged_one(self, position: int) -> None:
        """Checks the same of an event that a purge by subject has taken."""
        self.purges_by_subject += 1
        if position in self._unrouted:
            self.world.fail(f"the event at {position} is purged and not routed: {self.events[position]}")

    def unsettled(self) -> str:
        """Says in a sentence what is still to be routed, or nothing."""
        for position in self._unrouted:
            return f"the event at {position} is not routed: {self.events[position]}"
        return self.timed.unsettled()

    def _certainly_wanting(self, timed: Timed, at: float) -> list[str]:
        """The receivers that want the event by each configuration since that time."""
        event = Published(0, timed.tenant, timed.type, timed.body, at, False, region=timed.region)
        return [each for each in self._versions if all(self._wanted(each, event))]

    def _wanted(self, receiver: str, event: Published) -> list[bool]:
        """True if the receiver wants the event by each configuration that may have been in force."""
        if event.type in MALFORMED or not receiver.startswith(f"{event.tenant}.") or receiver == event.about:
            return [False]
        versions = [(0.0, NOTHING), *self._versions.get(receiver, [])]
        last = max(n for n, (since, _) in enumerate(versions) if since <= max(0.0, event.at - CHANGE_MAX_S))
        return [wish.takes(event.type, event.body, event.region) for _, wish in versions[last:]]
