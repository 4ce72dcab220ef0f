"""Commands: everything that can be asked of a receiver.

A command carries what `decide` cannot know by itself, such as positions in the stream. The time and the
bucket in memory are arguments of `decide`.
"""

from msgspec import Struct

from actors.configuration.policy import AlertLimits
from actors.machine.event import Event
from actors.machine.facts import Burial
from actors.machine.numbering import Numbered
from actors.machine.outcome import Answered, Failed
from actors.machine.pace.pace import Observation


class RecordOutcome(Struct, frozen=True, gc=False):
    """Record the outcome of an attempt with these events, in order; a ping has none.

    - `answer`: the part of the answer's body that may be recorded if the attempt failed.
    - `is_offline_ping`: it was a ping in place of an event; no operator asked for it.
    """

    events: tuple[Event, ...]
    outcome: Answered | Failed
    answer: str = ""
    is_offline_ping: bool = False


class LearnPace(Struct, frozen=True, gc=False):
    """Record what was observed of the receiver, in order, if that teaches something about its pace."""

    observed: tuple[Observation, ...]


class NoteOutage(Struct, frozen=True):
    """Note that this node can connect to no host: the time from now on does not count as failing."""


class Adopt(Struct, frozen=True):
    """Adopt another configuration, of that `revision`.

    No owner can have posted anything beyond the position `above`.
    """

    above: int
    epoch: int
    revision: int = 0


class OpenReceiver(Struct, frozen=True):
    """Open a receiver, which gets the events beyond `position`.

    `removal`: the revision of its last removal, 0 if it was never removed.
    """

    position: int
    window: int
    removal: int = 0


class GiveUpEvents(Struct, frozen=True):
    """Give up these events: one that is open, or the next ones without a number; `by`: who asked for it."""

    events: tuple[Numbered, ...]
    reason: str
    by: str = ""


class DropDuplicate(Struct, frozen=True, gc=False):
    """Drop the oldest event without a number, which is a duplicate."""

    event: Event


class NumberEvents(Struct, frozen=True, gc=False):
    """Give the events their numbers before their first attempt, since later ones may be settled before."""

    events: tuple[Event, ...]


class StartAttempt(Struct, frozen=True, gc=False):
    """Record an attempt that has taken its token, before it is made."""

    events: tuple[Event, ...]


class StartPing(Struct, frozen=True):
    """Record a ping that has taken its token, before it is made."""


class StartHandshake(Struct, frozen=True):
    """Record a handshake that has taken its token, before it is made."""


class RecordHandshake(Struct, frozen=True):
    """Record the outcome of a handshake about `key`; the owner's `epoch` is that of a changed bucket.

    An `Answered` with a 2xx is proof. Without proof the sender makes a `Failed` of it.
    """

    key: str
    outcome: Answered | Failed
    epoch: int


class ParkReceiver(Struct, frozen=True):
    """Drop the waiting events from memory.

    - `waiting_since`: when the oldest of them was stored, if known.
    - `position`: the messages of all receivers up to here are released.
    """

    waiting_since: float | None
    position: int = 0


class UnparkReceiver(Struct, frozen=True):
    """Record that all events that were only in the stream are settled."""


class ResumeReceiver(Struct, frozen=True):
    """End everything that holds the receiver back, because an operator asked; `by` names who."""

    by: str = ""


class RemoveReceiver(Struct, frozen=True):
    """Discard the open events and those beyond the frontier, since the configuration is gone.

    - `position`: the last position that is discarded.
    - `waiting`: how many events beyond the frontier are discarded.
    - `removal`: the revision of the removal.
    - `source`: the highest source of the discarded events.
    - `keys`: their keys that enter the dedup window, packed.
    - `left_out`: how many numbers are left out beyond theirs: an owner that vanished may have given them.
    """

    position: int
    waiting: int
    removal: int = 0
    source: int = 0
    keys: bytes = b""
    left_out: int = 0


class MissEvents(Struct, frozen=True):
    """Record that events which were certainly stored at `first` to `last` are gone.

    - `posted`: how many events beyond the frontier an owner that vanished may have posted.
    - `source`: the highest known source of the missing events.
    """

    first: int
    last: int
    posted: int = 0
    source: int = 0


class EraseOpenEvent(Struct, frozen=True):
    """End the open event at `position` without another attempt, since an operator erases it."""

    position: int


class EraseWaitingEvent(Struct, frozen=True):
    """Drop an event that never gets a number, since an operator erases it."""

    position: int
    id: str


class RefuseEvent(Struct, frozen=True):
    """Make the event a dead letter without a number, for `reason`.

    Its receiver does not exist, it is malformed, or it has expired.
    """

    event: Event
    reason: str


class TurnAway(Struct, frozen=True):
    """Turn away events for unknown receivers; they are `discarded` if there is no room for dead letters."""

    events: tuple[Burial, ...]
    discarded: bool = False


class PassOver(Struct, frozen=True):
    """Move on to `position`: no event for an unknown receiver is left to be decided up to there."""

    position: int


class ForgetBacklog(Struct, frozen=True):
    """Discard everything that waits up to `position`: open events, and `waiting` events beyond the frontier.

    `source`, `keys` and `left_out` are as in `RemoveReceiver`. `by`: who asked for it.
    """

    position: int
    waiting: int
    source: int = 0
    keys: bytes = b""
    by: str = ""
    left_out: int = 0


class RecordBuried(Struct, frozen=True):
    """Record that the dead letters of the events at these positions are stored."""

    positions: tuple[int, ...]


class JudgeAlerts(Struct, frozen=True, kw_only=True):
    """Raise and end alerts, by the state and by these observations of the receiver.

    - `waiting_min`, `waiting_max`: bounds of the number of waiting events.
    - `oldest_at`: when the oldest of them was stored, if one waits and that is known.
    - `invalid`: the receiver has a configuration, but never had a valid one.
    - `watched_since`: since then, the owner could have made attempts all the time.
    - `all_know_handshakes`: every node that may take over knows the alert about handshakes.
    """

    limits: AlertLimits
    waiting_min: int = 0
    waiting_max: int = 0
    oldest_at: float | None = None
    invalid: bool = False
    all_know_handshakes: bool = True
    watched_since: float


class RecordAlertsPublished(Struct, frozen=True):
    """Record that the events about the alerts up to `number` are stored."""

    number: int


Command = (
    RecordOutcome | Adopt | OpenReceiver | GiveUpEvents | DropDuplicate | NumberEvents | StartAttempt
    | StartPing | ParkReceiver | UnparkReceiver | ResumeReceiver | RemoveReceiver | ForgetBacklog | MissEvents
    | RefuseEvent | TurnAway | PassOver | RecordBuried | EraseOpenEvent | EraseWaitingEvent
    | JudgeAlerts | RecordAlertsPublished | StartHandshake | RecordHandshake | NoteOutage | LearnPace
)  # fmt: skip
