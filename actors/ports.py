"""The ports of `actors`: everything that an actor needs from the outside world.

Each port has a real implementation (in `streams` or `angarium.delivery`) and a simulated one. An actor cannot
tell them apart; the contract tests make sure of that.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from actors.configuration.policy import Policy
from actors.configuration.transform import Shaping, Unshapeable
from actors.machine.event import Event
from actors.machine.facts import AlertFact, Burial, Fact
from actors.machine.outcome import Outcome
from actors.machine.state import State

EventShaping = Shaping | Unshapeable | None
"""The shaping of one body. None: it is sent as published; `Unshapeable`: it must not be sent at all."""


class Attempt(Struct, frozen=True, gc=False, kw_only=True):
    """One request to be made: a POST, or that of a handshake.

    - `sequence`: the number of the event; None for a ping, and for a handshake.
    - `ordinal`: 1 for the first attempt of a delivery; `failures`: how many of those before have failed.
    - `token_s`: the longest time until another token, under the limit in force; 0.0 without one.
    - `may_start`: asked right before the first byte leaves, with no await in between; if it says no, nothing
      may be sent.
    - `shapings`: how the bodies are shaped, for each event; empty if all are sent as published. There is no
      default, so that no attempt sends an original because this was forgotten.
    """

    receiver: str
    policy: Policy
    event: Event
    sequence: int | None
    ordinal: int
    may_start: Callable[[], bool]
    shapings: tuple[EventShaping, ...]
    failures: int = 0
    kind: Literal["event", "ping", "handshake"] = "event"
    token_s: float = 0.0

    @property
    def numbered(self) -> tuple[tuple[Event, int | None], ...]:
        """The one event, with its number."""
        return ((self.event, self.sequence),)


class BatchAttempt(Struct, frozen=True, gc=False, kw_only=True):
    """One POST of several events to be made, in order; `sequences` are their numbers.

    The other members are as in `Attempt`.
    """

    receiver: str
    policy: Policy
    events: tuple[Event, ...]
    sequences: tuple[int, ...]
    ordinal: int
    may_start: Callable[[], bool]
    shapings: tuple[EventShaping, ...]
    failures: int = 0
    token_s: float = 0.0

    @property
    def numbered(self) -> tuple[tuple[Event, int], ...]:
        """The events in order, each with its number."""
        return tuple(zip(self.events, self.sequences, strict=True))


class Sender(Protocol):
    """Makes one attempt. Expected failures are outcomes; it raises only for a defect.

    If a body cannot be shaped, nothing is sent, and the outcome is a `NotSent` that names its event.

    For a handshake a 2xx is the outcome only with the proof that the configuration asks for; without it the
    outcome is a `Failed`.
    """

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome: ...


class OwnOutage(Protocol):
    """The outage of this node: it can connect to no host. `since`: when that was noticed; None if it can."""

    since: float | None

    def may_try(self, receiver: str, policy: Policy) -> bool:
        """False if no attempt at this receiver may start; all actors are woken once it is over.

        The first receiver of a tenant that asks has its host probed.
        """
        ...

    def holds(self, policy: Policy) -> bool:
        """True if no attempt with this configuration may start; asking changes nothing."""
        ...


class DownHosts(Protocol):
    """The hosts that cannot be connected to."""

    @property
    def count(self) -> int:
        """Number of hosts that cannot be connected to."""
        ...

    def may_try(self, receiver: str, policy: Policy, *, has_attempts: bool) -> bool:
        """True if an attempt may start now: its host is up, or it is the turn of this receiver.

        If not, its actor is woken for its turn, or once the host is up. `has_attempts`: some are under way,
        so that the turn may be used; until then the receiver may ask again.
        """
        ...

    def is_down(self, policy: Policy) -> bool:
        """True if the host of a receiver with this configuration is down."""
        ...


class NoDownHosts:
    """Hosts that can always be connected to."""

    count: int = 0

    def may_try(self, receiver: str, policy: Policy, *, has_attempts: bool) -> bool:
        """True: nothing holds an attempt back."""
        return True

    def is_down(self, policy: Policy) -> bool:
        """False: no host is down."""
        return False


class NoOutage:
    """A node that can always connect to some host."""

    since: float | None = None

    def may_try(self, receiver: str, policy: Policy) -> bool:
        """True: nothing holds an attempt back."""
        return True

    def holds(self, policy: Policy) -> bool:
        """False: there is no outage."""
        return False


class Clock(Protocol):
    """The time of one ownership: the wall clock at the claim plus monotonic time since, in seconds."""

    def now(self) -> float: ...


class BacklogPage(Struct, frozen=True, gc=False, kw_only=True):
    """The result of a read of one receiver's backlog: events in stream order.

    `complete`: the leader has no more events of this receiver up to the position that the read should reach.
    """

    events: list[Event]
    complete: bool


class ShardPage(Struct, frozen=True, gc=False, kw_only=True):
    """The result of a read of the whole shard: events with their receivers, in stream order.

    `complete`: the shard has no more events up to the position that the read should reach.
    """

    events: list[tuple[str, Event]]
    complete: bool


class Backlog(Protocol):
    """Reads a receiver's own subject in the deliveries stream. Every method may raise Unavailable."""

    async def read(self, receiver: str, after: int, up_to: int, count_max: int) -> BacklogPage:
        """The next events above position `after`; asks the leader if a replica ends below `up_to`."""
        ...

    async def read_all(self, after: int, up_to: int, count_max: int) -> ShardPage:
        """The next messages of all receivers of the shard, those for malformed names included."""
        ...

    async def event(self, receiver: str, position: int) -> Event | None:
        """The event at `position`, from the leader; None if it is gone."""
        ...

    async def first_since(self, receiver: str, at: float) -> int | None:
        """The position of the first event that was stored at the time `at` or later, from the leader."""
        ...

    async def count(self, receiver: str, after: int) -> int:
        """Count the receiver's messages above position `after`; a replica that lags counts fewer."""
        ...

    async def erase(self, position: int, stored_at: float) -> None:
        """Overwrite and drop the message at `position`; that it is gone is certain on return.

        A message that was not stored at that time is another one, and stays; 0.0 if the time is not known.
        Raises ControlDenied if the stream refuses that: then it is certainly there.
        """
        ...

    async def end(self) -> int:
        """A position that is certainly at or beyond everything that was stored before this call."""
        ...


class DeadLetterWriter(Protocol):
    """Publishes dead letters."""

    async def bury(self, receiver: str, burials: Sequence[Burial], answers: Mapping[int, str]) -> None:
        """Publish these dead letters, and return once all are stored. Repeating it is harmless.

        `answers` has the beginnings of the last answers that are known, by position.
        """
        ...


class AlertWriter(Protocol):
    """Publishes events about alerts."""

    async def publish(self, fact: AlertFact) -> None:
        """Publish the event about an alert, and return once it is stored. May raise Unavailable.

        Repeating it is harmless.
        """
        ...


class Absent(Struct, frozen=True):
    """The leader's answer that there is no such receiver."""


class Invalid(Struct, frozen=True):
    """The leader's answer that there is a configuration, but that none was ever valid."""

    problems: tuple[str, ...]


class Removal(Struct, frozen=True):
    """A configuration was removed at the time `at`. A later removal has a higher `revision`."""

    revision: int
    at: float


class Policies(Protocol):
    """The configurations of receivers, as this node knows them."""

    @property
    def is_complete(self) -> bool:
        """False while the existing ones are read: what is known of a receiver may long have been replaced."""
        ...

    def policy(self, receiver: str) -> Policy | None:
        """The last valid configuration, with the installation's defaults filled in; None if none is known."""
        ...

    def revision(self, receiver: str) -> int:
        """The revision of the last valid configuration; 0 if none is known."""
        ...

    def removal(self, receiver: str) -> Removal | None:
        """The last known removal; a configuration may have been put since."""
        ...

    def has_record(self, receiver: str) -> bool:
        """True if there is a configuration, valid or not, or one was removed."""
        ...

    async def catch_up(self) -> None:
        """Return once all is known that the leader of the configurations knew at the time of this call.

        May raise Unavailable. Calls at the same time share one question to the leader.
        """
        ...

    async def confirm(self, receiver: str) -> Policy | Absent | Invalid:
        """Ask the leader of the configurations. May raise Unavailable."""
        ...


class Snapshots(Protocol):
    """The snapshots of one shard."""

    async def load(self, receiver: str, due: float = 0.0) -> State | None:
        """The actor's last snapshot, from the leader. May raise Unavailable.

        If many wait for their turn, those that are `due` first come first.
        """
        ...

    async def receivers(self) -> list[str]:
        """The receivers that have a snapshot, or had one, from the leader. May raise Unavailable."""
        ...


class Recorded(Protocol):
    """A fact that the journal holds, with the state after it."""

    @property
    def fact(self) -> Fact: ...
    @property
    def state(self) -> State: ...


class Recorder(Protocol):
    """Records the facts of actors: the journal of their shard."""

    index: int
    """Index of the last fact taken; the first is 1."""
    confirmed_index: int
    """Index of the last fact that the journal certainly holds."""

    @property
    def is_stalled(self) -> bool:
        """An append has been unconfirmed for more than a second: start nothing."""
        ...

    def add(self, fact: Fact, state: State, urgent: bool = False) -> int:
        """Take a fact and the state after it; returns the fact's index."""
        ...

    def flush(self) -> None:
        """Store the facts that were taken without waiting for others."""
        ...
