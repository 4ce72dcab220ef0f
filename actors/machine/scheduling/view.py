"""The view: the part of an actor's memory that is not in facts, as `next_step` sees it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from actors.machine.bucket import Bucket
from actors.machine.event import Event
from actors.machine.state import UNCONFIRMED_MAX


class Cutoff(Struct, frozen=True, gc=False):
    """An order to give up everything unsettled up to the position `to`, for `reason`."""

    to: int
    reason: str


class BoundsView(Protocol):
    """Bounds that the shard sets: whether an attempt may start, and which events an owner may have posted.

    - `may_start`: nothing in the shard forbids an attempt.
    - `may_reach`: this node is not known to reach no host.
    - `may_try_host`: the receiver's host is up, or it is this receiver's turn there, which asking takes.
    - `epoch`: the epoch of the current owner.
    - `released_to`: no event up to here belongs to a new receiver.
    - `posted_to_max`: no owner can have posted beyond this position.
    - `all_know_handshakes`: every node that may take over knows the facts about handshakes.
    - `all_know_transforms`: every node that may take over knows the facts about transforms.
    - `all_know_offline_pings`: every node that may take over knows the outcomes of pings in place of events.
    - `policy_revision`: the revision of the configuration in memory.
    - `room`: number of further events that may be in flight, or settled and not confirmed.
    """

    @property
    def may_start(self) -> bool: ...

    @property
    def may_reach(self) -> bool: ...

    @property
    def may_try_host(self) -> bool: ...

    @property
    def room(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def released_to(self) -> int: ...

    @property
    def posted_to_max(self) -> int: ...

    @property
    def all_know_handshakes(self) -> bool: ...

    @property
    def all_know_transforms(self) -> bool: ...

    @property
    def all_know_offline_pings(self) -> bool: ...

    @property
    def policy_revision(self) -> int: ...


class FixedBounds(Struct, frozen=True):
    """Bounds as values, of which asking changes nothing; without arguments there are none."""

    may_start: bool = True
    may_reach: bool = True
    may_try_host: bool = True
    room: int = UNCONFIRMED_MAX
    epoch: int = 1
    released_to: int = 0
    posted_to_max: int = 0
    all_know_handshakes: bool = True
    all_know_transforms: bool = True
    all_know_offline_pings: bool = True
    policy_revision: int = 0


class CursorView(Protocol):
    """The part of the cursor that decisions depend on: how far the stream is read, and what is left in it.

    - `read_to`: all events up to here are in memory or settled.
    - `seen_to`: the last position at which an event was certainly stored.
    - `left_min`: at least this many events are only in the stream.
    - `is_counted`: `left_min` is exact.
    - `is_counting`: the events are being counted.
    """

    @property
    def read_to(self) -> int: ...

    @property
    def seen_to(self) -> int: ...

    @property
    def left_min(self) -> int: ...

    @property
    def is_counted(self) -> bool: ...

    @property
    def is_counting(self) -> bool: ...


class UnreadCursor(Struct, frozen=True):
    """The cursor if there was never anything to read."""

    read_to: int = 0
    seen_to: int = 0
    left_min: int = 0
    is_counted: bool = True
    is_counting: bool = False


class View(Struct, frozen=True, gc=False, kw_only=True):
    """The part of an actor's memory that is not in facts.

    - `waiting`: all events in memory that have no number yet, oldest first.
    - `open_in_memory`: the open events in memory, by position.
    - `in_flight`: positions of the events that are being sent, in `posts_in_flight` POSTs.
    - `cursor`: how far the stream is read.
    - `cutoff`: the order to give up everything up to a position, if there is one.
    - `overflowed_at`: when events were last given up for `overflow`.
    - `has_unacked`: the receiver holds messages that the consumer handed out.
    - `barrier_unconfirmed`: a fact that must be confirmed before anything starts is not confirmed yet.
    - `burying`: dead letters are being stored.
    - `granted_position`: that of the first event whose attempt is recorded and not made yet; 0 for none.
    - `policy_adopted`: the configuration in memory is the one that the facts name.
    - `handshake_under_way`: a handshake is recorded or being made.
    - `offline_ping_under_way`: a ping in place of an event is recorded or being made.
    - `confirming`: the leader is being asked whether the receiver exists.
    - `invalid`: it has a configuration, but never had a valid one.
    - `absent_up_to`: when the event at this position had arrived, the receiver did not exist.
    - `removal_revision`: revision of the last removal of its configuration.
    - `bucket`: its tokens now; None if it has no rate limit.
    - `set_aside`: tokens of attempts that are recorded and not made yet, pings included.
    - `paced_at`: when the last attempt was due under a learnt rate.
    - `bounds`: bounds that the shard sets, each computed only when it is asked for.
    """

    waiting: Sequence[Event] = ()
    open_in_memory: Mapping[int, Event] = field(default_factory=dict)
    in_flight: Collection[int] = ()
    posts_in_flight: int = 0
    cursor: CursorView = UnreadCursor()
    cutoff: Cutoff | None = None
    overflowed_at: float = 0.0
    has_unacked: bool = False
    barrier_unconfirmed: bool = False
    burying: bool = False
    granted_position: int = 0
    policy_adopted: bool = True
    handshake_under_way: bool = False
    offline_ping_under_way: bool = False
    confirming: bool = False
    invalid: bool = False
    absent_up_to: int = 0
    removal_revision: int = 0
    bucket: Bucket | None = None
    set_aside: int = 0
    paced_at: float = 0.0
    bounds: BoundsView = FixedBounds()

    @property
    def head(self) -> Event | None:
        """The oldest event in memory that has no number yet."""
        return self.waiting[0] if self.waiting else None
