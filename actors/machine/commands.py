"""What can be asked of a receiver (commands, imperative), and what it then owes (steps).

A command carries everything that `decide` may not know by itself: the time, the bucket as it is in memory,
places in the stream. A step is performed by the shell, which answers with a command.
"""

from collections.abc import Collection, Mapping

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
    at: float
    bucket: Bucket | None


class Adopt(Struct, frozen=True):
    """The configuration is another one. `above`: no owner can have posted anything beyond this position."""

    at: float
    above: int
    epoch: int
    bucket: Bucket | None


class OpenReceiver(Struct, frozen=True):
    """The receiver exists and begins with the events beyond `position`; `removal` was its last, if any."""

    at: float
    position: int
    window: int
    removal: int = 0


class GiveUpEvents(Struct, frozen=True):
    """The events are not to be tried any more: an open one, or the next ones that had no number."""

    events: tuple[Numbered, ...]
    reason: str
    at: float
    bucket: Bucket | None


class DropRepeat(Struct, frozen=True, gc=False):
    """The event at the head is a repeat."""

    event: Event


class AcceptEvent(Struct, frozen=True, gc=False):
    """The event gets its number before its first attempt: others may be settled before it."""

    event: Event


class StartAttempt(Struct, frozen=True, gc=False):
    """An attempt has taken its token and must be on record before it is made."""

    event: Event
    at: float
    bucket: Bucket | None


class StartPing(Struct, frozen=True):
    """A ping has taken its token and must be on record before it is made."""

    at: float
    bucket: Bucket | None


class ParkReceiver(Struct, frozen=True):
    """Its waiting events are dropped from memory. All up to `position` are released, whosever they were."""

    at: float
    waiting_since: float | None
    position: int = 0


class UnparkReceiver(Struct, frozen=True):
    """Everything that lay in the stream alone is settled."""

    at: float


class ResumeReceiver(Struct, frozen=True):
    """Somebody said to go on."""

    at: float


class RemoveReceiver(Struct, frozen=True):
    """Its configuration is gone. What is open is discarded, and `waiting` events beyond the frontier.

    `source` is the highest of theirs, and `keys` are those that enter the dedup window, packed.
    """

    at: float
    position: int
    waiting: int
    bucket: Bucket | None
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
    at: float
    bucket: Bucket | None
    posted: int = 0
    source: int = 0


class RefuseEvent(Struct, frozen=True):
    """The event at `position` belongs to no receiver that exists."""

    position: int
    reason: str
    at: float
    source: int = 0


class TurnAway(Struct, frozen=True):
    """These events are for names that nobody knows. `discarded`: there is no room for dead letters."""

    events: tuple[Burial, ...]
    at: float
    discarded: bool = False


class ForgetBacklog(Struct, frozen=True):
    """What waits up to `position` is not wanted any more: what is open, and `waiting` beyond the frontier.

    `source` and `keys` are those of `RemoveReceiver`.
    """

    at: float
    position: int
    waiting: int
    bucket: Bucket | None
    source: int = 0
    keys: bytes = b""


class MarkBuried(Struct, frozen=True):
    """The dead letters of the events at these positions are stored."""

    positions: tuple[int, ...]


Command = (
    RecordOutcome | Adopt | OpenReceiver | GiveUpEvents | DropRepeat | AcceptEvent | StartAttempt | StartPing
    | ParkReceiver | UnparkReceiver | ResumeReceiver | RemoveReceiver | ForgetBacklog | MissEvents
    | RefuseEvent | TurnAway | MarkBuried
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


class Record(Struct, frozen=True):
    """Take a token and record the attempt of `event` before it is made."""

    event: Event


class GiveUp(Struct, frozen=True):
    """Dead-letter these events, under these numbers."""

    events: tuple[Numbered, ...]
    reason: str


class Ignore(Struct, frozen=True):
    """Drop `event`: it is a repeat."""

    event: Event


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


class Refuse(Struct, frozen=True):
    """Dead-letter `event`, which belongs to no receiver, without a number."""

    event: Event
    reason: str


class Begin(Struct, frozen=True):
    """There is such a receiver: open it."""


class Reconfigure(Struct, frozen=True):
    """Adopt the configuration that is in force now."""


class Park(Struct, frozen=True):
    """Drop the waiting events from memory: their turn is far off."""


class Unpark(Struct, frozen=True):
    """Nothing lies in the stream alone any more."""


class WaitUntil(Struct, frozen=True, gc=False):
    """Nothing is owed before `at`."""

    at: float


class Rest(Struct, frozen=True, gc=False):
    """Nothing is owed until something happens."""


Decision = Record | GiveUp | Ignore | Refuse | Begin | Reconfigure | Unpark
Step = Post | Bury | Read | Count | Fetch | Ask | Park | WaitUntil | Rest | Decision


class Line(Struct, frozen=True, gc=False):
    """Whatever is not settled up to the position `to` is given up, for `reason`."""

    to: int
    reason: str


class View(Struct, frozen=True, gc=False, kw_only=True):
    """What the shell holds in memory about an actor, and facts say nothing about.

    `waiting` are the events in memory that have no number yet, oldest first, and `head` is the first of them;
    `held` are the open events in memory, by position, `in_flight` the positions of those whose attempt is
    being made. `read_to`: all events of this receiver up to there are in memory or settled; `seen`: the last
    that is known to have been there; `left` events at least lie in the stream alone, just so many if
    `counted`. `line`: as it was drawn; `trimmed_at`: when events were given up for `overflow`. `holding`:
    messages of the consumer are bound to it. `unconfirmed`: a fact that must be confirmed before anything
    starts is not. `may_start`: the shard is in order. `granted`: the position whose attempt was recorded and
    not yet made. `adopted`: the configuration in memory is the one that facts speak of. `asking`: whether
    there is such a receiver is being asked; `invalid`: there is, and never was a valid configuration;
    `absent_to`: there was none when the event at that position had come; `removal`: the last one of its
    configuration; `set_aside`: tokens of attempts that are recorded and not made yet, pings included.
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
    line: Line | None = None
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
