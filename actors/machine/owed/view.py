"""The view: the part of an actor's memory that is not in facts, as `next_step` sees it."""

from collections.abc import Collection, Mapping
from typing import Protocol

from msgspec import Struct, field

from actors.machine.bucket import Bucket
from actors.machine.event import Event


class Cutoff(Struct, frozen=True, gc=False):
    """An order to give up everything unsettled up to the position `to`, for `reason`."""

    to: int
    reason: str


class Reach(Protocol):
    """Upper bounds of the events that any owner of the shard may have posted.

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
    """The reach in an unused shard."""

    epoch: int = 1
    released_to: int = 0
    taken_to: int = 0


class ReadingProgress(Protocol):
    """The cursor, for reading alone: how far the stream is read for this receiver, and what is left in it.

    All events up to `read_to` are in memory or settled; the last that is known to have been there is at
    `seen`. `left` events at least lie in the stream alone, just so many if `counted`; while `counting`,
    they are counted.
    """

    @property
    def read_to(self) -> int: ...

    @property
    def seen(self) -> int: ...

    @property
    def left(self) -> int: ...

    @property
    def counted(self) -> bool: ...

    @property
    def counting(self) -> bool: ...


class NothingRead(Struct, frozen=True):
    """The progress if there was never anything to read."""

    read_to: int = 0
    seen: int = 0
    left: int = 0
    counted: bool = True
    counting: bool = False


class View(Struct, frozen=True, gc=False, kw_only=True):
    """The part of an actor's memory that is not in facts.

    `waiting` are the events in memory that have no number yet, oldest first, and `head` is the first of
    them; `held` are the open events in memory, by position, `in_flight` the positions of those whose
    attempt is being made. `cursor`: how far the stream is read. `cutoff`: as it was drawn; `trimmed_at`:
    when events were given up for `overflow`. `holding`: messages of the consumer are bound to it.
    `unconfirmed`: a fact that must be confirmed before anything starts is not. `may_start`: the shard is
    in order. `granted`: the position whose attempt was recorded and not yet made. `adopted`: the
    configuration in memory is the one that facts name. `asking`: whether there is such a receiver is
    being asked; `invalid`: there is, and never was a valid configuration; `absent_to`: there was none
    when the event at that position had come; `removal`: the last one of its configuration; `set_aside`:
    tokens of attempts that are recorded and not made yet, pings included; `reach` is asked only where it
    counts.
    """

    head: Event | None = None
    waiting: Collection[Event] = ()
    held: Mapping[int, Event] = field(default_factory=dict)
    in_flight: Collection[int] = ()
    cursor: ReadingProgress = NothingRead()
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
