"""Commands: what can be asked of a receiver. Steps: what it owes next; those that only record are commands.

A command carries what `decide` cannot know by itself, such as places in the stream. The time and the bucket
in memory are arguments of `decide`.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from msgspec import Struct, field

from actors.machine.bucket import Bucket
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
    """Nothing up to `position` is for a name that nobody knows, but what was turned away."""

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


class Post(Struct, frozen=True, gc=False):
    """Make attempt `attempt` of `event`, under number `sequence`.

    A `free` one has its token already. An event that is to be `accepted` gets its number on record first.
    """

    event: Event
    sequence: int
    attempt: int
    free: bool
    accepted: bool = False


class Bury(Struct, frozen=True):
    """Publish these dead letters."""

    burials: tuple[Burial, ...]


class Read(Struct, frozen=True):
    """Read the receiver's backlog above position `after`."""

    after: int


class Count(Struct, frozen=True):
    """Count what lies above position `after`: it may be more than the receiver may have waiting."""

    after: int


class Fetch(Struct, frozen=True):
    """Read the open event at `position` again: its body is not in memory."""

    position: int


class Ask(Struct, frozen=True):
    """Ask the leader of the configurations whether there is such a receiver: here, none is known."""


class Park(Struct, frozen=True):
    """Drop the waiting events from memory: their turn is far off."""


class WaitUntil(Struct, frozen=True, gc=False):
    """Nothing is owed before `at`."""

    at: float


class Rest(Struct, frozen=True, gc=False):
    """Nothing is owed until something happens."""


Recorded = OpenReceiver | Adopt | DropRepeat | RefuseEvent | GiveUpEvents | StartAttempt | UnparkReceiver
"""Steps that are performed by recording them."""

Step = Post | Bury | Read | Count | Fetch | Ask | Park | WaitUntil | Rest | Recorded


class Cutoff(Struct, frozen=True, gc=False):
    """Whatever is not settled up to the position `to` is given up, for `reason`."""

    to: int
    reason: str


class Reach(Protocol):
    """Bounds of how far events may have gone under any owner of the shard.

    No event up to `released_to` is a new receiver's, and none beyond `taken_to` can have been posted. `epoch`
    is that of the present owner.
    """

    @property
    def epoch(self) -> int: ...

    @property
    def released_to(self) -> int: ...

    @property
    def taken_to(self) -> int: ...


class Nowhere(Struct, frozen=True):
    """The reach in a shard that nobody has used."""

    epoch: int = 1
    released_to: int = 0
    taken_to: int = 0


class View(Struct, frozen=True, gc=False, kw_only=True):
    """The part of an actor's memory that no fact tells.

    `waiting` are the events in memory that have no number yet, oldest first, and `head` is the first of them;
    `held` are the open events in memory, by position, `in_flight` the positions of those whose attempt is
    being made. `read_to`: all events of this receiver up to there are in memory or settled; `seen`: the last
    that is known to have been there; `left` events at least lie in the stream alone, just so many if
    `counted`. `cutoff`: as it was drawn; `trimmed_at`: when events were given up for `overflow`. `holding`:
    messages of the consumer are bound to it. `unconfirmed`: a fact that must be confirmed before anything
    starts is not. `may_start`: the shard is in order. `granted`: the position whose attempt was recorded and
    not yet made. `adopted`: the configuration in memory is the one that facts speak of. `asking`: whether
    there is such a receiver is being asked; `invalid`: there is, and never was a valid configuration;
    `absent_to`: there was none when the event at that position had come; `removal`: the last one of its
    configuration; `set_aside`: tokens of attempts that are recorded and not made yet,
    pings included; `reach` is asked only where it counts.
    """

    head: Event | None = None
    waiting: Collection[Event] = ()
    held: Mapping[int, Event] = field(default_factory=dict)
    in_flight: Collection[int] = ()
    read_to: int = 0
    seen: int = 0
    left: int = 0
    counted: bool = True
    counting: bool = False
    cutoff: Cutoff | None = None
    trimmed_at: float = 0.0
    holding: bool = False
    unconfirmed: bool = False
    burying: bool = False
    may_start: bool = True
    granted: int = 0
    adopted: bool = True
    asking: bool = False
    invalid: bool = False
    absent_to: int = 0
    removal: int = 0
    bucket: Bucket | None = None
    set_aside: int = 0
    reach: Reach = Nowhere()
