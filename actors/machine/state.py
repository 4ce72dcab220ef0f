"""The state of one receiver: its open events, never its settled ones, so that it stays small.

It is nothing but the fold of the receiver's facts. A quiet actor is about a kilobyte plus its dedup window.
"""

from msgspec import Struct, field

from actors.machine.bucket import Bucket, Limit, next_token_at
from actors.machine.facts import Burial, OutcomeFact
from actors.machine.numbering import Frontier, Numbered

OPEN_MAX = 256
"""Events that may have a number and not be settled (relaxed order; strict order opens one at a time)."""
BURIALS_MAX = 128
"""Dead letters that a receiver may owe: what is given up waits for those before it to be buried."""
TOMBSTONE_KEPT_S = 8 * 86400.0
"""Time that the state of a removed receiver is kept: the age of the deliveries (7 days), and a day."""


class Open(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """An event that has its number and is not settled.

    `attempts` counts all that came back, `failures` those that count (not throttling), `rejections` those
    that were the event's own fault. The next attempt is due at `next_at`.
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


class Counters(Struct, frozen=True, gc=False, kw_only=True):
    """Totals since the receiver was first put."""

    delivered: int = 0
    failed_attempts: int = 0
    throttled: int = 0
    dead: int = 0
    discarded: int = 0
    duplicates: int = 0


class State(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Everything that the journal says about one receiver.

    The frontier and the open events (strict order opens one at a time) are the numbering; `bucket` is the
    last one recorded, under the `limit` recorded last; `throttled_until`, `backoff_until`, `failing_since`
    and `disabled` hold the receiver as a whole back; `waiting_since` is when the oldest event in the stream
    alone was stored.
    """

    receiver: str
    frontier: Frontier = field(default_factory=Frontier)
    open: tuple[Open, ...] = ()
    burials: tuple[Burial, ...] = ()
    opened: bool = False
    removal: int = 0
    removed_at: float | None = None
    limit: Limit | None = None
    bucket: Bucket | None = None
    target: str = ""
    throttled_until: float = 0.0
    throttles: int = 0
    backoff_until: float = 0.0
    failing_since: float | None = None
    consecutive_failures: int = 0
    parked: bool = False
    waiting_since: float | None = None
    paused: bool = False
    disabled: str = ""
    last: OutcomeFact | None = None
    counters: Counters = field(default_factory=Counters)

    @property
    def settled_sequence(self) -> int:
        """The number up to which every one is settled."""
        return self.open[0].sequence - 1 if self.open else self.frontier.sequence

    @property
    def unfinished(self) -> bool:
        """True if there is work left that no message of the inbox will trigger."""
        return self.parked or bool(self.burials)

    @property
    def wakes_at(self) -> float | None:
        """The time of the receiver's next work, as far as the state knows; None: only on an event or a
        request.

        It only orders the actors that come back. An event may expire sooner, and a policy may change it.
        """
        if self.burials:
            return 0.0
        if self.paused or self.disabled:
            return None
        token_at = next_token_at(self.bucket, self.limit) if self.bucket and self.limit else 0.0
        open_at = min((each.next_at for each in self.open), default=0.0)
        return max(token_at, open_at, self.throttled_until, self.backoff_until)

    @property
    def needed_position(self) -> int | None:
        """The lowest position whose message is still needed, or None when nothing is."""
        needed = [each.position for each in self.open] + [each.position for each in self.burials]
        if self.parked:
            needed.append(self.frontier.position + 1)
        return min(needed, default=None)


def is_left_over(state: State, floor: int, now: float) -> bool:
    """True if the receiver may be forgotten: it does not exist, and none of its events is left.

    All messages up to `floor` are released. The numbering is kept as long as an event may lie in the stream.
    """
    if state.opened or state.open or state.unfinished or state.frontier.position > floor:
        return False
    return state.removed_at is not None and state.removed_at + TOMBSTONE_KEPT_S < now


def open_entry(state: State, position: int) -> Open | None:
    """The open event at `position`, if it is one."""
    for entry in state.open:
        if entry.position == position:
            return entry
    return None


def is_settled(state: State, position: int) -> bool:
    """True if the event at this position is settled."""
    return position <= state.frontier.position and open_entry(state, position) is None


def as_numbered(entry: Open) -> Numbered:
    """The open event as facts name it."""
    return Numbered(
        sequence=entry.sequence, position=entry.position, id=entry.id, stored_at=entry.stored_at,
        again=entry.again, source=entry.source, type=entry.type,
    )  # fmt: skip


def fresh_entry(event: Numbered) -> Open:
    """An open event that was not tried yet."""
    return Open(
        sequence=event.sequence, position=event.position, id=event.id, stored_at=event.stored_at,
        again=event.again, source=event.source, type=event.type,
    )  # fmt: skip


def with_entry(opened: tuple[Open, ...], entry: Open) -> tuple[Open, ...]:
    """The open events with `entry` as it is now, in the order of their numbers."""
    others = (each for each in opened if each.position != entry.position)
    return tuple(sorted((*others, entry), key=lambda each: each.sequence))
