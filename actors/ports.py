"""The ports of `actors`: everything that an actor needs of the outside world.

Each port has a real body (in `streams` or `angarium.delivery`) and a simulated one; an actor cannot tell
them apart, and the contract tests make sure of that.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from actors.machine.event import Event
from actors.machine.facts import Burial, Fact
from actors.machine.outcome import Outcome
from actors.machine.state import State
from actors.policy import Policy


class Attempt(Struct, frozen=True, gc=False, kw_only=True):
    """One POST to be made.

    `sequence` is None for a ping. `ordinal` is 1 for the first attempt of a delivery. `may_start` is asked
    right before the first byte leaves, with no await in between: once it says no, nothing may be sent.
    """

    receiver: str
    policy: Policy
    event: Event
    sequence: int | None
    ordinal: int
    may_start: Callable[[], bool]


class Sender(Protocol):
    """Makes one attempt. Expected failures are outcomes; it raises only for a defect."""

    async def send(self, attempt: Attempt) -> Outcome: ...


class Clock(Protocol):
    """The time of one ownership: the wall clock at the claim plus monotonic time since, in seconds."""

    def now(self) -> float: ...


class Batch(Struct, frozen=True, gc=False, kw_only=True):
    """The result of a read of one receiver's backlog: events in stream order.

    `complete`: the leader has nothing more of this receiver up to the position that the read was to reach.
    """

    events: list[Event]
    complete: bool


class Stretch(Struct, frozen=True, gc=False, kw_only=True):
    """The result of a read of the whole shard: events with their receivers, in stream order.

    `complete`: the shard has nothing more up to the position that the read was to reach.
    """

    events: list[tuple[str, Event]]
    complete: bool


class Backlog(Protocol):
    """Reads a receiver's own subject in the deliveries stream. Every method may raise Unavailable."""

    async def read(self, receiver: str, after: int, reach: int, count_max: int) -> Batch:
        """The next events above position `after`; asks the leader where a replica ends below `reach`."""
        ...

    async def read_all(self, after: int, reach: int, count_max: int) -> Stretch:
        """The next messages of all receivers of the shard, those for malformed names included."""
        ...

    async def event(self, receiver: str, position: int) -> Event | None:
        """The event at `position`, from the leader; None when it is gone."""
        ...

    async def first_since(self, receiver: str, at: float) -> int | None:
        """The position of the first event that was stored since the instant `at`, from the leader."""
        ...

    async def count(self, receiver: str, after: int) -> int:
        """Counts the receiver's messages above position `after`; a replica that lags counts fewer."""
        ...

    async def end(self) -> int:
        """A position at or beyond all that was stored before this was asked, for certain."""
        ...


class DeadLetterWriter(Protocol):
    """Publishes dead letters."""

    async def bury(self, receiver: str, burials: Sequence[Burial], answers: Mapping[int, str]) -> None:
        """Publish these dead letters, and return once all are stored. Repeating it is harmless.

        `answers` has the beginnings of the last answers, as far as they are known, by position.
        """
        ...


class Absent(Struct, frozen=True):
    """The answer that there is no such receiver, by the leader."""


class Invalid(Struct, frozen=True):
    """The answer that there is a configuration, but never a valid one."""

    problems: tuple[str, ...]


class Removal(Struct, frozen=True):
    """A configuration was taken away at the instant `at`. A later removal has a higher `revision`."""

    revision: int
    at: float


class Policies(Protocol):
    """The configurations of receivers, as this node knows them."""

    def policy(self, receiver: str) -> Policy | None:
        """The last valid configuration, with the installation's defaults filled in; None if none is known."""
        ...

    def removal(self, receiver: str) -> Removal | None:
        """The last removal that is known of; a configuration may have been put since."""
        ...

    def heard_of(self, receiver: str) -> bool:
        """True if there is a configuration, valid or not, or one was removed."""
        ...

    async def catch_up(self) -> None:
        """Return when all is known that the leader of the bucket knew when this was called.

        May raise Unavailable. To be asked for by many at once costs one question.
        """
        ...

    async def confirm(self, receiver: str) -> Policy | Absent | Invalid:
        """Ask the leader of the bucket. May raise Unavailable."""
        ...


class Snapshots(Protocol):
    """The snapshots of one shard."""

    async def load(self, receiver: str, due: float = 0.0) -> State | None:
        """The actor's last snapshot, from the leader. May raise Unavailable.

        Where many wait for their turn, who is `due` first comes first.
        """
        ...

    async def receivers(self) -> list[str]:
        """The receivers that have a snapshot, or had one, by the leader. May raise Unavailable."""
        ...


class Recorded(Protocol):
    """A fact as the journal gives it back once it holds it, with the state after it."""

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
    def stalled(self) -> bool:
        """An append has been unconfirmed for more than a second: start nothing."""
        ...

    def add(self, fact: Fact, state: State, urgent: bool = False) -> int:
        """Take a fact and the state after it; returns the fact's index."""
        ...
