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
    """The outcome of an attempt. `event` is None for a ping.

    `answer` is what of the answer's body may be on record where the attempt failed.
    """

    event: Event | None
    outcome: Answered | Failed
    answer: str = ""


class Adopt(Struct, frozen=True):
    """Adopt another configuration. `above`: no owner can have posted anything beyond this position."""

    above: int
    epoch: int


class OpenReceiver(Struct, frozen=True):
    """Open a receiver that gets the events beyond `position`; `removal` was its last, if any."""

    position: int
    window: int
    removal: int = 0


class GiveUpEvents(Struct, frozen=True):
    """Give up these events: an open one, or the next ones that have no number."""

    events: tuple[Numbered, ...]
    reason: str


class DropRepeat(Struct, frozen=True, gc=False):
    """Drop the event at the head, which is a repeat."""

    event: Event


class AcceptEvent(Struct, frozen=True, gc=False):
    """Give the event its number before its first attempt: others may be settled before it."""

    event: Event


class StartAttempt(Struct, frozen=True, gc=False):
    """Record an attempt that has taken its token, before it is made."""

    event: Event


class StartPing(Struct, frozen=True):
    """Record a ping that has taken its token, before it is made."""


class ParkReceiver(Struct, frozen=True):
    """Drop its waiting events from memory. Up to `position` all are released, of other receivers too."""

    waiting_since: float | None
    position: int = 0


class UnparkReceiver(Struct, frozen=True):
    """Record that all events that were only in the stream are settled."""


class ResumeReceiver(Struct, frozen=True):
    """End whatever holds the receiver back, as an operator asked."""


class RemoveReceiver(Struct, frozen=True):
    """Discard what is open and `waiting` events beyond the frontier: the configuration is gone.

    `source` is the highest of theirs, and `keys` are those that enter the dedup window, packed.
    """

    position: int
    waiting: int
    removal: int = 0
    source: int = 0
    keys: bytes = b""


class MissEvents(Struct, frozen=True):
    """Record that events known to have been at `first` to `last` are gone.

    An owner that vanished may have `posted` so many beyond the frontier, and `source` is known to have been
    the highest of the events that are gone.
    """

    first: int
    last: int
    posted: int = 0
    source: int = 0


class RefuseEvent(Struct, frozen=True):
    """Make the event a dead letter without a number: it belongs to no receiver that exists."""

    event: Event
    reason: str


class TurnAway(Struct, frozen=True):
    """Turn away events for unknown names. `discarded`: there is no room for dead letters."""

    events: tuple[Burial, ...]
    discarded: bool = False


class PassOver(Struct, frozen=True):
    """Move on to `position`: up to there no event for an unknown name is left to be judged."""

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
    """Record that the dead letters of the events at these positions are stored."""

    positions: tuple[int, ...]


Command = (
    RecordOutcome | Adopt | OpenReceiver | GiveUpEvents | DropRepeat | AcceptEvent | StartAttempt | StartPing
    | ParkReceiver | UnparkReceiver | ResumeReceiver | RemoveReceiver | ForgetBacklog | MissEvents
    | RefuseEvent | TurnAway | PassOver | MarkBuried
)  # fmt: skip
