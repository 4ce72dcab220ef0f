"""The state of one receiver: it holds the open events, never the settled ones, so it stays small.

It is exactly the fold of the receiver's facts. A quiet actor is about a kilobyte plus its dedup window.
"""

from collections.abc import Iterable
from operator import attrgetter

from msgspec import Struct, field

from actors.configuration.transform import Transform, transform_hash
from actors.machine.bucket import Bucket, RateLimit, next_token_at
from actors.machine.facts import AlertFact, AlertKind, AttemptFailed, Burial, OutcomeFact
from actors.machine.numbering import Frontier, Numbered
from actors.machine.pace.pace import Pace

OPEN_MAX = 256
"""Events that may have a number without being settled (relaxed order; strict order opens one at a time)."""
UNCONFIRMED_MAX = 256
"""Settled events of a receiver whose facts may be unconfirmed; with batches, those in flight included."""
UNRECORDED_MAX = UNCONFIRMED_MAX + OPEN_MAX
"""Numbers that one owner may have given without a record: of settled and of open events."""
BURIALS_MAX = 128
"""Dead letters of one receiver that may wait to be stored; no further events are given up before."""
UNPUBLISHED_ALERTS_MAX = 12
"""Events about a receiver's alerts that may wait to be published; no further alert changes before."""
TRANSFORMS_MAX = 8
"""Transforms of one receiver that are kept: the present one, and earlier ones for open events."""
TRANSFORMS_BYTES_MAX = 16 << 10
"""Bytes of all of them as JSON: a snapshot of a receiver is one message."""
TOMBSTONE_KEPT_S = 8 * 86400.0
"""Time that the state of a removed receiver is kept: the longest age of a delivery (7 days), and a day."""


class OpenEvent(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """An event that has its number and is not settled.

    - `attempts`: all attempts that have an outcome.
    - `failures`: those that failed; throttling does not count.
    - `rejections`: those that failed because of the event itself.
    - `aborted`: the receiver wants no further attempt.
    - `next_at`: when the next attempt is due.
    - `status`: the status of the last answer.
    - `post`: first and last number of its last recorded POST, if that had other events, or of a half of it.
    - `halved`: it belongs to a half of that POST, which was not tried by itself yet.
    - `transform`: revision of the transform by which its body is shaped; 0: by none.
    """

    sequence: int
    position: int
    id: str
    stored_at: float
    again: str = ""
    source: int = 0
    attempts: int = 0
    failures: int = 0
    rejections: int = 0
    next_at: float = 0.0
    status: int | None = None
    type: str = ""
    published_at: float = 0.0
    aborted: bool = False
    post: tuple[int, int] | None = None
    halved: bool = False
    transform: int = 0

    @property
    def accepted_at(self) -> float:
        """When the event was accepted from its producer."""
        return self.published_at or self.stored_at

    @property
    def group(self) -> tuple[int, int] | None:
        """The numbers of the POST whose events go together; None if it has no outcome, and goes with any."""
        return self.post or ((self.sequence, self.sequence) if self.attempts else None)

    @property
    def has_failed_alone(self) -> bool:
        """True if the last recorded POST had no other event, so that its failure was this event's own."""
        return self.attempts > 0 and self.post is None and not self.halved


class Counters(Struct, frozen=True, gc=False, kw_only=True):
    """Totals since the receiver was first put: they count events, not POSTs."""

    delivered: int = 0
    failed_attempts: int = 0
    throttled: int = 0
    dead: int = 0
    discarded: int = 0
    duplicates: int = 0


class Alert(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The last alert of one kind, kept after its recovery, so that the next one is not raised too soon."""

    kind: AlertKind
    raised_at: float
    raised: bool = False


class Handshake(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The last handshake that was begun.

    - `key`: hash of the URL and the secrets that it is about.
    - `verified`: the receiver has passed it; `per_minute`: requests a minute that it allowed, if it said so.
    - `failures`, `error`: how it failed so far; `next_at`: when the next one is due.
    - `failing_since`, `failed_at`: its first and its last failure, those of a node or proxy aside.
    """

    key: str
    verified: bool = False
    per_minute: int | None = None
    failures: int = 0
    failing_since: float | None = None
    failed_at: float = 0.0
    error: str = ""
    next_at: float = 0.0


class Returning(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The return of a receiver that was offline.

    - `begins_at`: from then on it gets events.
    - `successes`: attempts that succeeded, those of a round that failed aside.
    """

    begins_at: float
    successes: int = 0


class RecordedTransform(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A transform that was in force, the revision of its configuration, and the hash of its key."""

    revision: int
    transform: Transform
    key: str = ""


class State(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Everything that the journal says about one receiver.

    - `frontier`, `open`: the numbering; strict order opens one event at a time.
    - `burials`: dead letters that are still to be stored.
    - `opened`: the receiver exists.
    - `removal`: revision of the last removal that was carried out, `removed_at` its time.
    - `limit`, `bucket`: the rate limit and the tokens that were recorded last.
    - `target`: hash of the URL.
    - `handshake`: the last handshake; None if none was ever begun.
    - `throttled_until`, `backoff_until`, `paused`, `disabled`: what holds the receiver back as a whole.
    - `disabled_at`: since when it is disabled; None in snapshots of older versions.
    - `throttles`: pauses that it has asked for in a row.
    - `failing_since`, `consecutive_failures`: its own failures since the last success.
    - `our_failures`: consecutive attempts that Angarium or a proxy failed, not the receiver. The time after
      each does not count as failing.
    - `parked`: some events are only in the stream; `waiting_since` is when the oldest of them was stored.
    - `last`: the last outcome.
    - `alerts`: the last alert of each kind; `alert_number`: number of the last one, raised or recovered.
    - `unpublished_alerts`: alerts whose events are still to be published, in order.
    - `dead_letter_at`: when the last event was given up that an alert is about, or is still to be raised for;
      0.0 if there is none.
    - `joined`: how often an event was in the POST of another one, whatever its outcome.
    - `transform`: revision of the transform in force; 0: none.
    - `transforms`: that one, and the earlier ones of open events, the newest last.
    - `pseudonym_key`: hash of the key of pseudonyms in force.
    - `pace`: what was learnt about what the receiver can take; None if nothing was.
    - `returning`: it was offline, and its attempts grow in number; None if that is over.
    """

    receiver: str
    frontier: Frontier = field(default_factory=Frontier)
    open: tuple[OpenEvent, ...] = ()
    burials: tuple[Burial, ...] = ()
    opened: bool = False
    removal: int = 0
    removed_at: float | None = None
    limit: RateLimit | None = None
    bucket: Bucket | None = None
    target: str = ""
    handshake: Handshake | None = None
    throttled_until: float = 0.0
    throttles: int = 0
    backoff_until: float = 0.0
    failing_since: float | None = None
    consecutive_failures: int = 0
    our_failures: int = 0
    parked: bool = False
    waiting_since: float | None = None
    paused: bool = False
    disabled: str = ""
    disabled_at: float | None = None
    last: OutcomeFact | None = None
    counters: Counters = field(default_factory=Counters)
    alerts: tuple[Alert, ...] = ()
    alert_number: int = 0
    unpublished_alerts: tuple[AlertFact, ...] = ()
    dead_letter_at: float = 0.0
    joined: int = 0
    transform: int = 0
    transforms: tuple[RecordedTransform, ...] = ()
    pseudonym_key: str = ""
    pace: Pace | None = None
    returning: Returning | None = None

    def kept_transform(self, revision: int) -> RecordedTransform | None:
        """The transform of that revision; None if it is gone."""
        for each in self.transforms:
            if each.revision == revision:
                return each
        return None

    def transform_for(self, revision: int) -> int | None:
        """The revision by which an event of that revision is shaped: if it is gone, the one in force.

        None: it cannot be shaped any more, so it must not be sent. Its pointers need a key of pseudonyms, and
        there is none, or they are gone, and no transform is in force.
        """
        if not revision:
            return 0
        kept = self.kept_transform(revision)
        if kept is None:
            return self.transform or None
        return revision if self.pseudonym_key or not kept.transform.pseudonymize else None

    def shapes_otherwise(self, revision: int) -> bool:
        """True if an event of that revision gets another body than before: that is gone, or its key is."""
        if not revision:
            return False
        kept = self.kept_transform(revision)
        return kept is None or (bool(kept.transform.pseudonymize) and kept.key != self.pseudonym_key)

    @property
    def has_groups(self) -> bool:
        """True if some open events have to be tried together, or by themselves."""
        return any(each.post is not None or each.halved for each in self.open)

    @property
    def posts(self) -> int:
        """Number of POSTs with a recorded outcome."""
        counters = self.counters
        return counters.delivered + counters.failed_attempts + counters.throttled - self.joined

    @property
    def settled_sequence(self) -> int:
        """The highest number such that it and all lower ones are settled."""
        return self.open[0].sequence - 1 if self.open else self.frontier.sequence

    @property
    def failures_in_a_row(self) -> int:
        """The failures after which it backs off as a whole, ours included: more attempts would not help."""
        return self.consecutive_failures + self.our_failures

    @property
    def ours_since(self) -> float | None:
        """The time of the last attempt, if a node or proxy made it fail; no later time counts as failing."""
        last = self.last
        return last.at if isinstance(last, AttemptFailed) and last.ours else None

    @property
    def may_age(self) -> bool:
        """True if it fails, and the time that passes counts."""
        return self.failing_since is not None and self.ours_since is None

    def failing_s(self, now: float) -> float:
        """The time for which it has been failing."""
        if self.failing_since is None:
            return 0.0
        until = now if self.ours_since is None else min(now, self.ours_since)
        return until - self.failing_since

    @property
    def is_unfinished(self) -> bool:
        """True if there is work left that no incoming message will trigger."""
        return self.parked or bool(self.burials) or self.may_change_alerts

    @property
    def may_change_alerts(self) -> bool:
        """True if an alert has to begin, end or be published, though nothing happens to the receiver.

        One that fails, is disabled or unproven, and has the alert, may rest: its next fact brings it back.
        Nor does a failure alone begin an alert: that takes another failed attempt, or an event that waits for
        one.
        """
        if not (self.alerts or self.dead_letter_at or self.disabled or self.unpublished_alerts):
            return False  # The most frequent case.
        raised = [each.kind for each in self.alerts if each.raised]
        if self.unpublished_alerts or not self.opened:
            return bool(self.unpublished_alerts or raised)
        fails = self.failing_since is not None
        unproven = self.handshake is not None and not self.handshake.verified
        lasts = {
            "failing": fails, "offline": fails, "disabled": bool(self.disabled), "handshake_failed": unproven,
        }  # fmt: skip
        is_told = not self.disabled or "disabled" in raised
        return bool(self.dead_letter_at) or not is_told or not all(lasts.get(kind, False) for kind in raised)

    @property
    def wakes_at(self) -> float | None:
        """The time at which the receiver has work, as far as the state knows; None if it waits for an event.

        It only orders the actors that return to memory: an event may expire sooner, and a policy may change.
        """
        if self.burials or self.unpublished_alerts:
            return 0.0
        if not (self.parked or self.open):
            return None
        if self.paused or self.disabled:
            return None
        token_at = next_token_at(self.bucket, self.limit) if self.bucket and self.limit else 0.0
        open_at = min((each.next_at for each in self.open), default=0.0)
        return max(token_at, open_at, self.throttled_until, self.backoff_until)

    @property
    def needed_position(self) -> int | None:
        """The lowest position whose message is still needed; None if none is."""
        needed = [each.position for each in self.open] + [each.position for each in self.burials]
        if self.parked:
            needed.append(self.frontier.position + 1)
        return min(needed, default=None)


def is_left_over(state: State, floor: int, now: float) -> bool:
    """True if the receiver may be forgotten: it does not exist, and none of its events is left.

    All messages up to `floor` are released. The numbering is kept as long as the stream may have an event.
    """
    if state.opened or state.open or state.is_unfinished or state.frontier.position > floor:
        return False
    return state.removed_at is not None and state.removed_at + TOMBSTONE_KEPT_S < now


def open_entry(state: State, position: int) -> OpenEvent | None:
    """The open event at `position`; None if there is none."""
    for entry in state.open:
        if entry.position == position:
            return entry
    return None


def is_settled(state: State, position: int) -> bool:
    """True if the event at this position is settled."""
    return position <= state.frontier.position and open_entry(state, position) is None


def as_numbered(entry: OpenEvent) -> Numbered:
    """The open event as facts name it."""
    return Numbered(
        sequence=entry.sequence, position=entry.position, id=entry.id, stored_at=entry.stored_at,
        again=entry.again, source=entry.source, type=entry.type, published_at=entry.published_at,
        transform=entry.transform,
    )  # fmt: skip


def fresh_entry(event: Numbered) -> OpenEvent:
    """The entry of an open event that was not tried yet."""
    return OpenEvent(
        sequence=event.sequence, position=event.position, id=event.id, stored_at=event.stored_at,
        again=event.again, source=event.source, type=event.type, published_at=event.published_at,
        transform=event.transform,
    )  # fmt: skip


def transform_of_letter(state: State, revision: int) -> str:
    """The mark of a dead letter: revision and hash of the transform of its event; empty without one.

    A transform that is gone has no hash, so that no other one can be taken for it.
    """
    if not revision:
        return ""
    kept = state.kept_transform(revision)
    return f"{revision}" if kept is None else f"{revision} {transform_hash(kept.transform, kept.key)}"


def in_order(opened: Iterable[OpenEvent]) -> tuple[OpenEvent, ...]:
    """The open events in the order of their numbers."""
    return tuple(sorted(opened, key=attrgetter("sequence")))
