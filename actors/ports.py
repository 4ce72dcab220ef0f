"""The ports of the deciding floor: what the shell of an actor needs of the world, and nothing more.

Each port has a real body (in `streams` or `angarium.delivery`) and a simulated one; the shell cannot tell them
apart, and the contract tests see to it that nobody can.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from actors.event import Event
from actors.facts import Burial, Fact
from actors.outcome import Outcome
from actors.policy import Policy
from actors.state import State


class Attempt(Struct, frozen=True, kw_only=True):
    """One POST to be made.

    `sequence` is None for a ping. `number` is 1 for the first attempt of a delivery. `may_start` is asked
    right before the first byte leaves, with no await in between: once it says no, nothing may be sent.
    """

    receiver: str
    policy: Policy
    event: Event
    sequence: int | None
    number: int
    may_start: Callable[[], bool]


class Sender(Protocol):
    """Makes one attempt. Expected failures are outcomes; it raises only when it is broken."""

    async def send(self, attempt: Attempt) -> Outcome: ...


class Clock(Protocol):
    """The time of one ownership: the wall clock at the claim plus monotonic time since, in seconds."""

    def now(self) -> float: ...


class Batch(Struct, frozen=True, kw_only=True):
    """What a read of one receiver's backlog found: events in stream order, and whether that is all there is.

    `complete` means that the leader has nothing of this receiver beyond the last event up to the position that
    the read was asked to reach. `remaining` counts what lies behind the batch.
    """

    events: list[Event]
    complete: bool
    remaining: int = 0


class Backlog(Protocol):
    """Reads a receiver's own subject in the deliveries stream."""

    async def read(self, receiver: str, after: int, reach: int, count_max: int) -> Batch:
        """The next events above position `after`; asks the leader where a replica ends below `reach`."""
        ...

    async def event(self, receiver: str, position: int) -> Event | None:
        """The event at `position`, from the leader; None when it is gone."""
        ...


class Graveyard(Protocol):
    """Publishes dead letters."""

    async def bury(self, receiver: str, burial: Burial, event: Event | None) -> None:
        """Publish the dead letter and return once it is stored. Repeating it is harmless."""
        ...


class Recorder(Protocol):
    """Where an actor's facts go: the journal of its shard."""

    def add(self, fact: Fact, state: State) -> int:
        """Take a fact and the state after it; returns the fact's index, which `confirmed` will reach."""
        ...
