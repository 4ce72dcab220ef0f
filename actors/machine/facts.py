"""Facts: what an actor records, in the past tense. They are the truth; everything else is folded from them.

Rules. A tag is written by hand and never reused. A new member has a default, so that old journals stay
readable. A fact carries results (the number, the bucket, the instant to resume at), never a request for them,
so that folding needs no policy and no clock. Instants are seconds since the epoch; `bucket` is as it was when
the fact was decided. Outcome facts name their events in a list, one for now, since batches will come, and a
`kind`: `event` or `ping`.
"""

from msgspec import Struct

from actors.machine.bucket import Bucket, Limit
from actors.machine.numbering import Numbered


class _Fact(Struct, frozen=True, gc=False, kw_only=True, tag_field="fact", omit_defaults=True):
    receiver: str


class _Outcome(_Fact, frozen=True, kw_only=True, omit_defaults=True):
    events: tuple[Numbered, ...]
    at: float
    attempt: int
    status: int | None = None
    latency_ms: float = 0.0
    bucket: Bucket | None = None
    kind: str = "event"


class Delivered(_Outcome, frozen=True, kw_only=True, omit_defaults=True, tag="delivered"):
    """The receiver accepted the event: settled."""


class AttemptFailed(_Outcome, frozen=True, kw_only=True, omit_defaults=True, tag="attempt_failed"):
    """The receiver did not accept it; the next attempt is due at `next_at`.

    `rejected`: by the event's own fault. `gone`: the receiver wants no more at all, so nothing counts against
    the event, which waits. `ours`: this node had no connection to spare, so nothing counts against the event,
    nor is the receiver failing. `until`: after so many failures in a row, ours included, the receiver as a
    whole is left alone. `answer`: the beginning of the answer's body, without credentials.
    """

    error: str = ""
    next_at: float = 0.0
    until: float = 0.0
    rejected: bool = False
    gone: bool = False
    ours: bool = False
    answer: str = ""


class Throttled(_Outcome, frozen=True, kw_only=True, omit_defaults=True, tag="throttled"):
    """The receiver asked for a pause until `until`; this is no failure and does not count."""

    until: float = 0.0


class Burial(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A dead letter that is still to be published. `sequence` is None for an event that got no number.

    `receiver` is whose it is, where it is another one than that of the fact.
    """

    position: int
    reason: str
    sequence: int | None = None
    attempts: int = 0
    status: int | None = None
    receiver: str = ""


class DeadLettered(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="dead_lettered"):
    """The event is given up, for a stated reason: settled, and owed a burial."""

    events: tuple[Numbered, ...]
    at: float
    reason: str
    attempts: int = 0
    status: int | None = None
    bucket: Bucket | None = None


class Buried(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="buried"):
    """The dead letters of the events at `position`, or at `positions`, are in their stream."""

    position: int = 0
    positions: tuple[int, ...] = ()


class EventAccepted(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="accepted"):
    """The event has its number (relaxed order: later ones may be settled before it)."""

    events: tuple[Numbered, ...]


class Started(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="started"):
    """An attempt took its token and will be made once this is confirmed (where tokens are slow to come)."""

    events: tuple[Numbered, ...]
    at: float
    bucket: Bucket | None = None


class Repeated(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="repeated"):
    """The event at `position` was a repeat and was dropped: this changes a counter and nothing else."""

    position: int
    id: str = ""


class Parked(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="parked"):
    """The waiting events are only in the stream. `waiting_since`: when the oldest was stored, if known.

    `position`: of a receiver that is not opened, no event up to there is its own.
    """

    at: float
    waiting_since: float | None = None
    position: int = 0


class Unparked(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="unparked"):
    """All events that were only in the stream are settled."""

    at: float


class Opened(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="opened"):
    """The receiver exists (again) and gets the events beyond `position`; its numbers go on.

    `removal` is the revision of the last removal of its configuration: a higher one has yet to be obeyed.
    """

    at: float
    position: int
    window: int = 256
    removal: int = 0


class Removed(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="removed"):
    """The receiver was removed; what waited up to `position` is discarded. The numbering is kept.

    What is discarded counts as numbered: `source` is the highest of its sources, and `keys` are those of its
    ids that enter the dedup window, packed, the newest last.
    """

    at: float
    position: int
    next_sequence: int
    discarded: int = 0
    bucket: Bucket | None = None
    removal: int = 0
    source: int = 0
    keys: bytes = b""


class Forgot(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="forgot"):
    """An operator discarded what waited up to `position`, and failures are forgotten. Numbers go on.

    `source` and `keys` are those of `Removed`.
    """

    at: float
    position: int
    next_sequence: int
    discarded: int = 0
    bucket: Bucket | None = None
    source: int = 0
    keys: bytes = b""


class Missing(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="missing"):
    """Events known to have been at `first` to `last` are gone from the stream; numbers go on after a gap.

    `source` is the highest that is known of theirs. Their ids are gone with them.
    """

    at: float
    first: int
    last: int
    next_sequence: int
    bucket: Bucket | None = None
    source: int = 0


class Repaired(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="repaired"):
    """An operator accepted that the deliveries lost their tail: they are read again from behind `position`.

    What was open or owed a burial beyond it is `dropped`, by position: its message is gone. Numbers go on
    after a gap, above all that were ever given.
    """

    at: float
    position: int
    next_sequence: int
    dropped: tuple[int, ...] = ()
    bucket: Bucket | None = None


class RemovalSet(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="removal_set"):
    """An operator accepted that the configurations are in another bucket, which counts its own revisions.

    Of that bucket, removals up to the revision `removal` were obeyed.
    """

    at: float
    removal: int


class WindowSet(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="window_set"):
    """The dedup window has another size, for events beyond the position `above`."""

    size: int
    above: int


class RateSet(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="rate_set"):
    """Another rate is in force from now on; None: no limit."""

    limit: Limit | None
    bucket: Bucket | None = None


class Retargeted(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="retargeted"):
    """The receiver has another URL (a hash of it: URLs may hold secrets). Nothing holds it back any more."""

    target: str


class Paused(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="paused"):
    """The configuration pauses the receiver."""

    at: float


class Resumed(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="resumed"):
    """An operator resumed the receiver: its pause, disablement, backoff and throttling end."""

    at: float


class Disabled(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="disabled"):
    """The receiver gets nothing more until it is resumed or retargeted. `reason`: `gone` or `failing`."""

    at: float
    reason: str


class Pinged(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="pinged"):
    """A ping took its token and will be made once this is confirmed."""

    at: float
    bucket: Bucket | None = None


class EventRefused(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="refused"):
    """An event without a number is given up and owed a burial: `unknown_receiver`, `malformed`, `expired`.

    A later copy from the same `source` is a repeat. The id does not enter the window: the receiver, if there
    is one later, was never given the event, and its producer may send it again.
    """

    position: int
    reason: str
    at: float
    source: int = 0


class TurnedAway(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="turned_away"):
    """Events for unknown names are given up and owed a burial, in the order of their positions.

    No receiver holds a message below them, so the flush with this fact has a floor beyond them. `discarded`:
    dead letters cannot be stored, so they get none.
    """

    events: tuple[Burial, ...]
    at: float
    discarded: bool = False


class Claimed(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="fact", tag="claimed"):
    """The shard has a new owner. `position`: the last of the deliveries, read after the claim of `_owner`.

    `unclean_*` describe the last claim that did not follow a release, this one included.
    """

    epoch: int
    at: float
    clean: bool
    position: int
    unclean_epoch: int = 0
    unclean_position: int = 0
    unclean_at: float = 0.0


OutcomeFact = Delivered | AttemptFailed | Throttled
Fact = (
    Delivered | AttemptFailed | Throttled | DeadLettered | Buried | EventAccepted | Started | Repeated
    | Parked | Unparked | Opened | Removed | Forgot | Missing | WindowSet | RateSet | Retargeted | Paused
    | Resumed | Disabled | Pinged | EventRefused | TurnedAway | Repaired | RemovalSet
)  # fmt: skip
AnyFact = Fact | Claimed
