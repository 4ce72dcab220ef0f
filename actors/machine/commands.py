"""Commands: everything that can be asked of a receiver.

A command carries what `decide` cannot know by itself, such as places in the stream. The time and the bucket
in memory are arguments of `decide`.
"""

from msgspec import Struct

from actors.machine.event import Event
from actors.machine.facts import Burial
from actors.machine.numbering import Numbered
from actors.machine.outcome import Answered, Failed


class RecordOutcome(Struct, frozen=True, gc=False):
    """An attempt ended. `event` is None for a ping."""

    event: Event | None
    outcome: Answered | Failed


class Adopt(Struct, frozen=True):
    """The configuration is another one. `above`: no owner can have posted anything beyond this position."""

    above: int
    epoch: int


class OpenReceiver(Struct, frozen=True):
    """The receiver exists and begins with the events beyond `position`; `removal` was its last, if any."""

    position: int
    window: int
    removal: int = 0


class GiveUpEvents(Struct, frozen=True):
    """The events are not to be tried any more: an open one, or the next ones that had no number."""

    events: tuple[Numbered, ...]
    reason: str


class DropRepeat(Struct, frozen=True, gc=False):
    """The event at the head is a repeat."""

    event: Event


class AcceptEvent(Struct, frozen=True, gc=False):
    """The event gets its number before its first attempt: others may be settled before it."""

    event: Event


class StartAttempt(Struct, frozen=True, gc=False):
    """An attempt has taken its token and must be on record before it is made."""

    event: Event


class StartPing(Struct, frozen=True):
    """A ping has taken its token and must be on record before it is made."""


class ParkReceiver(Struct, frozen=True):
    """Its waiting events are dropped from memory. All up to `position` are released, whosever they were."""

    waiting_since: float | None
    position: int = 0


class UnparkReceiver(Struct, frozen=True):
    """Everything that lay in the stream alone is settled."""


class ResumeReceiver(Struct, frozen=True):
    """Somebody said to go on."""


class RemoveReceiver(Struct, frozen=True):
    """Its configuration is gone. What is open is discarded, and `waiting` events beyond the frontier.

    `source` is the highest of theirs, and `keys` are those that enter the dedup window, packed.
    """

    position: int
    waiting: int
    removal: int = 0
    source: int = 0
    keys: bytes = b""


class MissEvents(Struct, frozen=True):
    """Events known to have been at `first` to `last` are gone.

    An owner that vanished may have `posted` so many beyond the frontier, and `source` is known to have been
    the highest of the events that are gone.
    """

    first: int
    last: int
    posted: int = 0
    source: int = 0


class RefuseEvent(Struct, frozen=True):
    """The event belongs to no receiver that exists: it becomes a dead letter without a number."""

    event: Event
    reason: str


class TurnAway(Struct, frozen=True):
    """These events are for names that nobody knows. `discarded`: there is no room for dead letters."""

    events: tuple[Burial, ...]
    discarded: bool = False


class PassOver(Struct, frozen=True):
    """No event up to `position` is for a name that nobody knows, but those that were turned away."""

    position: int


class ForgetBacklog(Struct, frozen=True):
    """Discard what waits up to `position`: what is open, and `waiting` events beyond the frontier.

    `source` and `keys` are those of `RemoveReceiver`.
    """

    position: int
    waiting: int
    source: int = 0
    keys: bytes = b""


class MarkBuried(Struct, frozen=True):
    """The dead letters of the events at these positions are stored."""

    positions: tuple[int, ...]


Command = (
    RecordOutcome | Adopt | OpenReceiver | GiveUpEvents | DropRepeat | AcceptEvent | StartAttempt | StartPing
    | ParkReceiver | UnparkReceiver | ResumeReceiver | RemoveReceiver | ForgetBacklog | MissEvents
    | RefuseEvent | TurnAway | PassOver | MarkBuried
)  # fmt: skip
