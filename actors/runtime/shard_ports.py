"""The environment of an actor: the ports of its shard, and what is known from the shard's claim."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from actors.counters import DeliveryTotals
from actors.machine.bucket import Unclean
from actors.machine.state import State
from actors.memory.unacked import Bindings
from actors.news import News
from actors.ports import Backlog, Clock, DeadLetterWriter, Policies, Recorder, Sender


class ShardPorts(Protocol):
    """The environment of an actor: the ports of its shard, and the shard's claim."""

    clock: Clock
    recorder: Recorder
    bindings: Bindings
    sender: Sender
    backlog: Backlog
    dead_letters: DeadLetterWriter
    policies: Policies
    totals: DeliveryTotals
    tell: Callable[[News], None]
    refuse: Callable[[str], None]
    epoch: int
    claimed_at: float
    claim_position: int
    unclean: Unclean | None
    in_flight: int
    stopped: bool

    @property
    def released_to(self) -> int:
        """The position up to which all events are released and decided, so none belongs to a new receiver."""
        ...

    @property
    def undecided_to(self) -> int:
        """The last position at which an event for an unknown name may be only in the stream; 0 if none is."""
        ...

    def may_start(self) -> bool:
        """True if an attempt may take its token now."""
        ...

    def within_lease(self) -> bool:
        """True if a first byte may leave now."""
        ...

    def may_have_posted(self, state: State, first_bound: int) -> bool:
        """True if an owner that vanished may have posted an unrecorded request to this receiver."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the shard."""
        ...

    def landed(self) -> None:
        """Count an attempt that is over."""
        ...

    async def confirmed_to(self, index: int) -> None:
        """Return once the journal holds the fact with that index."""
        ...
