"""Steps: what can be the next thing to do for a receiver. A step that only records is a command."""

from msgspec import Struct

from actors.machine.commands import (
    Adopt,
    DropDuplicate,
    GiveUpEvents,
    OpenReceiver,
    RefuseEvent,
    StartAttempt,
    StartHandshake,
    StartPing,
    UnparkReceiver,
)
from actors.machine.event import Event
from actors.machine.facts import Burial
from actors.machine.scheduling.rules import Rule


class Post(Struct, frozen=True, gc=False):
    """Make attempt `attempt` of `event`, with the number `sequence`.

    - `has_token`: the attempt has its token already.
    - `numbered_first`: the number of the event is recorded first.
    """

    event: Event
    sequence: int
    attempt: int
    has_token: bool
    numbered_first: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        """The one event."""
        return (self.event,)


class PostBatch(Struct, frozen=True, gc=False):
    """Make attempt `attempt` of these events in one POST, with the numbers `sequences`.

    - `has_token`: the attempt has its token already.
    - `numbered_first`: those of them whose numbers are recorded first.
    """

    events: tuple[Event, ...]
    sequences: tuple[int, ...]
    attempt: int
    has_token: bool
    numbered_first: tuple[Event, ...] = ()


class Bury(Struct, frozen=True):
    """Publish these dead letters."""

    burials: tuple[Burial, ...]


class ReadBacklog(Struct, frozen=True):
    """Read the receiver's backlog above position `after`."""

    after: int


class CountBacklog(Struct, frozen=True):
    """Count the events above position `after`: there may be more than `backlog_max`."""

    after: int


class ReadOpenEvents(Struct, frozen=True):
    """Read the open events at these positions again: their bodies are not in memory."""

    positions: tuple[int, ...]


class ConfirmReceiver(Struct, frozen=True):
    """Ask the leader of the configurations whether the receiver exists: this node does not know it."""


class Park(Struct, frozen=True):
    """Drop the waiting events from memory, since `rule` keeps them waiting for long."""

    rule: Rule


class WaitUntil(Struct, frozen=True, gc=False):
    """Do nothing before `at`, because of `rule`."""

    at: float
    rule: Rule


class Rest(Struct, frozen=True, gc=False):
    """Do nothing until something happens, because of `rule`."""

    rule: Rule


RecordedStep = (
    OpenReceiver | Adopt | DropDuplicate | RefuseEvent | GiveUpEvents | StartAttempt | UnparkReceiver
)
"""Steps that are carried out by recording them."""

Step = (
    Post
    | PostBatch
    | Bury
    | ReadBacklog
    | CountBacklog
    | ReadOpenEvents
    | ConfirmReceiver
    | Park
    | WaitUntil
    | Rest
    | StartHandshake
    | StartPing
    | RecordedStep
)
