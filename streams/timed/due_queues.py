"""Queues of entries that are due: tenants with batches of their own take turns. Pure.

A batch holds the entries of all tenants that are due in some time. A large one is split: then each tenant has
a batch of its own, and the rest, tenants without subscribers, stays together.
"""

from collections import deque

from msgspec import Struct

_SHARED, _REST = "", "-"
"""Queues of batches of all tenants, and of the rest of those that were split; no tenant has such a name."""


class DueBatch(Struct):
    """Entries to be published, from `position` on.

    - `tenant`: the only one, or empty for all except `others`, who have batches of their own.
    - `is_split`: all tenants with subscribers are among the others.
    - `is_single`: it has only the entry at `position`.
    - `again_at`: when it has a turn again, after an event of it was refused, and `pause_s` the next pause.
    """

    start: int
    size: int
    pause_s: float
    tenant: str = ""
    position: int = 1
    published: int = 0
    others: frozenset[str] = frozenset()
    is_split: bool = False
    is_single: bool = False
    again_at: float = 0.0

    @property
    def queue(self) -> str:
        """The name of the queue in which the batch waits for its turn."""
        return self.tenant or (_REST if self.is_split else _SHARED)


class DueQueues:
    """Batches that are ready to be published.

    The queues take turns, one turn for each tenant, however many batches it has: after an outage, or while it
    publishes more than can be sent, those of a flood grow in number. A tenant's own batches are published one
    after the other, others in turns.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[DueBatch]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, batch: DueBatch) -> None:
        """Put a batch at the end of its queue."""
        self._queues.setdefault(batch.queue, deque()).append(batch)

    def put_back(self, batch: DueBatch) -> None:
        """Put a batch back that is not finished: that of a tenant is its next one again."""
        if batch.tenant:
            self._queues.setdefault(batch.tenant, deque()).appendleft(batch)
        else:
            self.add(batch)

    def next(self) -> DueBatch:
        """Take the batch whose turn it is."""
        name = next(iter(self._queues))
        queue = self._queues.pop(name)
        batch = queue.popleft()
        if queue:
            self._queues[name] = queue  # At the end.
        return batch
