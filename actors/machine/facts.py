"""Facts: what an actor records, in the past tense. They are the truth; everything else is folded from them.

Rules. A tag is written by hand and never reused. A new member has a default, so that old journals stay
readable. A fact carries results (the number, the bucket, the time to resume at), never a request for them, so
that folding needs no policy and no clock. Times are seconds since the epoch; `bucket` is as it was when the
fact was decided. Outcome facts have a `kind`, `event` or `ping`, and name the events of their POST in a list:
several if the receiver gets batches.
"""

from typing import Literal

from msgspec import Struct

from actors.configuration.transform import Transform
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.numbering import Numbered
from actors.machine.pace.pace import Pace

ERASED = "erased"
"""The reason in facts about events that an operator erased."""
OUTSIDE_REGION = "region"
"""The reason in facts about events of a region that is not among the receiver's: they are discarded."""
NO_ATTEMPT = "outage"
"""The `kind` of a failure without an attempt: this node could connect to no host. Older versions know only
events and pings, and take it for a ping that failed by our fault."""
OFFLINE_PING = "offline_ping"
"""The `kind` of the outcome of a ping that an offline receiver got in place of an event."""
AlertKind = Literal["failing", "offline", "disabled", "behind", "dead_letters", "misconfigured",
                    "handshake_failed"]  # fmt: skip


class _Fact(Struct, frozen=True, gc=False, kw_only=True, tag_field="fact", omit_defaults=True):
    """A fact about a receiver."""

    receiver: str


class _Outcome(_Fact, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of an attempt, for each of its events."""

    events: tuple[Numbered, ...]
    at: float
    attempt: int
    status: int | None = None
    latency_ms: float = 0.0
    bucket: Bucket | None = None
    kind: str = "event"

    @property
    def is_grouped(self) -> bool:
        """True if it says which events are tried together from now on, or that one is tried by itself."""
        return len(self.events) > 1

    @property
    def is_trial(self) -> bool:
        """True for an attempt, or a ping in place of one: its failure counts against the receiver."""
        return self.kind in ("event", OFFLINE_PING)


class Delivered(_Outcome, frozen=True, kw_only=True, omit_defaults=True, tag="delivered"):
    """The receiver answered 2xx: the events of the POST are settled.

    `returns_at`: it was offline, and gets events again from then on, one attempt first.
    """

    returns_at: float = 0.0


class AttemptFailed(_Outcome, frozen=True, kw_only=True, omit_defaults=True, tag="attempt_failed"):
    """The attempt failed; the next attempt is due at `next_at`.

    - `until`: end of the receiver's backoff as a whole, after many failures in a row, ours included, or after
      a ping in place of an event.
    - `rejected`: the event itself is at fault; `aborted`: the receiver wants no further attempt of it.
    - `gone`: the receiver wants no more events at all; nothing counts against this one, which waits.
    - `ours`: this node or its proxy failed; nothing counts against the event or the receiver.
    - `answer`: the beginning of the answer's body, without credentials.
    - `failing_since`: as in `Throttled`.
    - `halved`: the POST had several events; nothing counts against any of them, and each half goes by itself.
    """

    error: str = ""
    next_at: float = 0.0
    until: float = 0.0
    rejected: bool = False
    gone: bool = False
    ours: bool = False
    answer: str = ""
    aborted: bool = False
    failing_since: float | None = None
    halved: bool = False

    @property
    def is_grouped(self) -> bool:
        """True if it says which events are tried together from now on, or that one is tried by itself."""
        return len(self.events) > 1 or self.halved


class Throttled(_Outcome, frozen=True, kw_only=True, omit_defaults=True, tag="throttled"):
    """The receiver asked for a pause until `until`; this does not count as a failure.

    - `failing_since`: since when the receiver counts as failing, if the attempt before was `ours`: the time
      after that one does not count.
    """

    until: float = 0.0
    failing_since: float | None = None


class Burial(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A dead letter that is still to be published.

    - `sequence`: None for an event that got no number.
    - `receiver`: its receiver, if that is not the receiver of the fact.
    - `transform`: revision and hash of the transform by which its body was to be shaped; empty without one.
    """

    position: int
    reason: str
    sequence: int | None = None
    attempts: int = 0
    status: int | None = None
    receiver: str = ""
    transform: str = ""


class DeadLettered(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="dead_lettered"):
    """The event is given up for a stated `reason`: it is settled, and its dead letter has to be stored.

    There is no dead letter for the reason `region`: such events are discarded, and may not leave it.
    `by`: who asked for it, as that client said, if the event was skipped.
    """

    events: tuple[Numbered, ...]
    at: float
    reason: str
    attempts: int = 0
    status: int | None = None
    bucket: Bucket | None = None
    by: str = ""


class Buried(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="buried"):
    """The dead letters of the events at `position`, or at `positions`, are stored."""

    position: int = 0
    positions: tuple[int, ...] = ()


class EventsNumbered(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="accepted"):
    """The event got its number (relaxed order: later events may be settled before it)."""

    events: tuple[Numbered, ...]


class Started(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="started"):
    """An attempt took its token, and is made once this is confirmed (used when tokens are slow to come)."""

    events: tuple[Numbered, ...]
    at: float
    bucket: Bucket | None = None


class EventDropped(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="repeated"):
    """The event at `position` was dropped without a number: this changes a counter and nothing else.

    It was a duplicate, unless `reason` is `erased`: then an operator erased it before it had a number.
    """

    position: int
    id: str = ""
    reason: str = ""


class Parked(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="parked"):
    """The waiting events are only in the stream now.

    - `waiting_since`: when the oldest of them was stored, if known.
    - `position`: if the receiver was never opened, none of the events up to here belongs to it.
    """

    at: float
    waiting_since: float | None = None
    position: int = 0


class Unparked(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="unparked"):
    """All events that were only in the stream are settled."""

    at: float


class Opened(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="opened"):
    """The receiver exists (again) and gets the events beyond `position`; its numbers continue.

    `removal`: revision of the last removal of its configuration; a higher one is still to be carried out.
    """

    at: float
    position: int
    window: int = 256
    removal: int = 0


class Removed(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="removed"):
    """The receiver was removed; the events that waited up to `position` are discarded. The numbering is kept.

    Discarded events count as numbered: `source` is their highest source, and `keys` are those of their ids
    that enter the dedup window, packed, the newest last. `left_out`: how many numbers are left out beyond
    theirs, since an owner that vanished may have given them to events that are gone.
    """

    at: float
    position: int
    next_sequence: int
    discarded: int = 0
    bucket: Bucket | None = None
    removal: int = 0
    source: int = 0
    keys: bytes = b""
    left_out: int = 0


class Forgot(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="forgot"):
    """An operator discarded the events that waited up to `position`; failures are cleared, numbers continue.

    `source`, `keys` and `left_out` are as in `Removed`. `by`: who asked for it, as that client said.
    """

    at: float
    position: int
    next_sequence: int
    discarded: int = 0
    bucket: Bucket | None = None
    source: int = 0
    keys: bytes = b""
    by: str = ""
    left_out: int = 0


class Missing(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="missing"):
    """Events that were certainly stored at `first` to `last` are gone; numbers continue after a gap.

    `source` is their highest known source. Their ids are lost with them. `reason` is `erased` if an operator
    erased an open event, which is gone once this is confirmed.
    """

    at: float
    first: int
    last: int
    next_sequence: int
    bucket: Bucket | None = None
    source: int = 0
    reason: str = ""


class Repaired(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="repaired"):
    """An operator accepted that the deliveries lost their tail; events beyond `position` are read again.

    Events beyond it that were open or had to be buried are `dropped`, by position: their messages are gone.
    Numbers continue after a gap, above all that were ever given.
    """

    at: float
    position: int
    next_sequence: int
    dropped: tuple[int, ...] = ()
    bucket: Bucket | None = None


class RemovalSet(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="removal_set"):
    """An operator accepted that the configurations are in another bucket, which counts its own revisions.

    Removals in that bucket up to the revision `removal` were carried out.
    """

    at: float
    removal: int


class WindowSet(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="window_set"):
    """The dedup window has another size, for events beyond the position `above`."""

    size: int
    above: int


class RateSet(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="rate_set"):
    """Another rate limit is in force from now on; None: no limit."""

    limit: RateLimit | None
    bucket: Bucket | None = None


class TransformSet(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="transform_set"):
    """Another transform is in force from now on, for events that get their numbers later; None: none.

    - `revision`: that of the configuration which has it.
    - `key`: hash of the key of pseudonyms; empty without one.
    """

    revision: int
    transform: Transform | None = None
    key: str = ""


class PaceSet(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="pace_set"):
    """Something was learnt about what the receiver can take; `pace` replaces what was known.

    The limits at that time, if they are below the configured ones: `per_second` attempts (0.0: a pause),
    `in_flight` at a time, and the members of `adaptive` by which they are.
    """

    at: float
    pace: Pace
    per_second: float | None = None
    in_flight: int | None = None
    limited_by: str = ""
    in_flight_by: str = ""


class Retargeted(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="retargeted"):
    """The receiver has another URL (`target` is its hash: URLs may hold secrets), and is tried at once."""

    target: str


class Paused(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="paused"):
    """The configuration pauses the receiver."""

    at: float


class Resumed(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="resumed"):
    """An operator resumed the receiver: its pause, disablement, backoff and throttling end.

    `by`: who asked for it, as that client said.
    """

    at: float
    by: str = ""


DisabledReason = Literal["gone", "asked", "failing"]
DISABLED_WHY: dict[str, str] = {
    "gone": "it answered 410", "asked": "it answered angarium-disable", "failing": "it failed for too long",
}  # fmt: skip
"""The reasons of `Disabled` in words, for alerts, logs, `inspect`, the history and `doctor`."""


class Disabled(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="disabled"):
    """The receiver gets nothing more until it is resumed or retargeted.

    `reason`: a `DisabledReason`, or one that a newer version knows.
    """

    at: float
    reason: str


class Pinged(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="pinged"):
    """A ping took its token, and is made once this is confirmed."""

    at: float
    bucket: Bucket | None = None


class HandshakeStarted(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="handshake_started"):
    """A handshake took its token, and is made once this is confirmed.

    `key`: hash of its kind, of the URL and of the secrets that it is about.
    """

    at: float
    key: str
    bucket: Bucket | None = None


class HandshakeSucceeded(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="handshake_succeeded"):
    """The receiver proved itself, so events may be sent as long as its `key` is the one in force.

    `per_minute`: it allowed so many requests a minute; None: any number.
    """

    at: float
    key: str
    status: int | None = None
    latency_ms: float = 0.0
    per_minute: int | None = None


class HandshakeFailed(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="handshake_failed"):
    """The receiver did not prove itself; the next handshake is due at `next_at`.

    - `until`: it asked for a pause until then.
    - `ours`: this node or its proxy failed, not the receiver.
    """

    at: float
    key: str
    status: int | None = None
    latency_ms: float = 0.0
    error: str = ""
    next_at: float = 0.0
    until: float = 0.0
    ours: bool = False


class EventRefused(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="refused"):
    """An event without a number becomes a dead letter (`unknown_receiver`, `malformed`, `expired`).

    A later copy from the same `source` is a duplicate. The id does not enter the window: if the receiver
    exists later, it was never given the event, and the producer may send it again.
    """

    position: int
    reason: str
    at: float
    source: int = 0


class TurnedAway(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="turned_away"):
    """Events for unknown receivers become dead letters, in the order of their positions.

    It is a fact of the record of unknown receivers; `EventRefused` is one of a single receiver. No receiver
    holds a message below them, so the flush with this fact has a floor beyond them. They are `discarded` if
    dead letters cannot be stored.
    """

    events: tuple[Burial, ...]
    at: float
    discarded: bool = False


class AlertRaised(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="alert_raised"):
    """The receiver crossed a limit. Once this is confirmed, the event about it has to be published.

    - `number`: counts the alerts of the receiver, raised or recovered; the event's id contains it.
    - `since`: when it began, if that is known; `why`: in words.
    """

    alert: AlertKind
    number: int
    at: float
    since: float | None = None
    why: str = ""


class AlertRecovered(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="alert_recovered"):
    """An alert that was raised at `raised_at` is over; `number` and `why` are as in `AlertRaised`."""

    alert: AlertKind
    number: int
    at: float
    raised_at: float
    why: str = ""


class AlertsPublished(_Fact, frozen=True, kw_only=True, omit_defaults=True, tag="alerts_published"):
    """The events about the receiver's alerts are stored, up to and including this `number`."""

    number: int


class Claimed(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="fact", tag="claimed"):
    """The shard has a new owner.

    - `clean`: the claim followed a release.
    - `position`: the last position of the deliveries, read after the claim of `_owner`.
    - `unclean_*`: the last claim that did not follow a release, this one included.
    """

    epoch: int
    at: float
    clean: bool
    position: int
    unclean_epoch: int = 0
    unclean_position: int = 0
    unclean_at: float = 0.0


OutcomeFact = Delivered | AttemptFailed | Throttled
AlertFact = AlertRaised | AlertRecovered
HandshakeFact = HandshakeStarted | HandshakeSucceeded | HandshakeFailed
Fact = (
    Delivered | AttemptFailed | Throttled | DeadLettered | Buried | EventsNumbered | Started
    | EventDropped | Parked | Unparked | Opened | Removed | Forgot | Missing | WindowSet | RateSet
    | Retargeted | Paused | Resumed | Disabled | Pinged | EventRefused | TurnedAway | Repaired | RemovalSet
    | AlertRaised | AlertRecovered | AlertsPublished
    | HandshakeStarted | HandshakeSucceeded | HandshakeFailed | TransformSet | PaceSet
)  # fmt: skip
AnyFact = Fact | Claimed
