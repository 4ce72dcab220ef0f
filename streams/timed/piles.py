"""Piles of entries that are to be opened: tenants with piles of their own take turns. Pure.

A pile holds the entries of all tenants that are due in some time. A large one is split: then each tenant has
a pile of its own, and the rest, tenants without subscribers, stays together.
"""

from collections import deque

from msgspec import Struct

_SHARED, _REST = "", "-"
"""Queues of piles of all tenants, and of what is left of those that were split; no tenant has such a name."""


class Pile(Struct):
    """Entries to be opened, from `position` on.

    - `tenant`: the only one, or empty for all except `others`, who have piles of their own.
    - `is_split`: all tenants with subscribers are among the others.
    - `is_single`: it has only the entry at `position`.
    - `again_at`: when it has a turn again, after an event of it was refused, and `pause_s` the next pause.
    """

    start: int
    size: int
    pause_s: float
    tenant: str = ""
    position: int = 1
    opened: int = 0
    others: frozenset[str] = frozenset()
    is_split: bool = False
    is_single: bool = False
    again_at: float = 0.0

    @property
    def queue(self) -> str:
        """The name of the queue in which the pile waits for its turn."""
        return self.tenant or (_REST if self.is_split else _SHARED)


class Piles:
    """Piles that are ready to be opened.

    The queues take turns, one turn for each tenant, however many piles it has: after an outage, or while it
    publishes more than can be opened, those of a flood grow in number. A tenant's own piles are opened one
    after the other, others in turns.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[Pile]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, pile: Pile) -> None:
        """Put a pile at the end of its queue."""
        self._queues.setdefault(pile.queue, deque()).append(pile)

    def put_back(self, pile: Pile) -> None:
        """Put a pile back that is not finished: that of a tenant is its next one again."""
        if pile.tenant:
            self._queues.setdefault(pile.tenant, deque()).appendleft(pile)
        else:
            self.add(pile)

    def next(self) -> Pile:
        """Take the pile whose turn it is."""
        name = next(iter(self._queues))
        queue = self._queues.pop(name)
        pile = queue.popleft()
        if queue:
            self._queues[name] = queue  # At the end.
        return pile
