"""Turns for scarce slots: tenants take turns, so do the receivers of each, and attempts keep their order.

While a tenant waits for its turn, each other tenant gets one at most, even if many of its attempts wait;
the same holds for the receivers of a tenant (docs/decisions/turns-for-connections.md).

There are two bounds, one for each host and one for all. A slot that becomes free is assigned in the same
call, so no newer attempt can take it. An attempt that waits for the overall bound keeps its slot at the host
meanwhile, so no attempt ever goes back to a queue that it has left.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from actors.ids import tenant_of

T = TypeVar("T")


class TurnQueue(Generic[T]):
    """A queue with turns, `count` entries long, each in it once. Each operation takes constant time."""

    __slots__ = ("_tenants", "count")

    def __init__(self) -> None:
        # An ordered dict finds its first entry at once; a plain dict searches past all removed ones.
        self._tenants: OrderedDict[str, OrderedDict[str, OrderedDict[T, None]]] = OrderedDict()
        self.count = 0

    def __iter__(self) -> Iterator[T]:
        for receivers in self._tenants.values():
            for entries in receivers.values():
                yield from entries

    def first(self) -> T:
        """The entry whose turn it is."""
        receivers = next(iter(self._tenants.values()))
        return next(iter(next(iter(receivers.values()))))

    def add(self, receiver: str, entry: T) -> None:
        """Append to the receiver's own queue; a tenant or receiver that is new here gets its turn last."""
        tenant = tenant_of(receiver)
        receivers = self._tenants.get(tenant)
        if receivers is None:
            receivers = self._tenants[tenant] = OrderedDict()
        entries = receivers.get(receiver)
        if entries is None:
            entries = receivers[receiver] = OrderedDict()
        entries[entry] = None
        self.count += 1

    def take(self) -> T:
        """Remove the first entry: its tenant and its receiver have had their turn."""
        tenant, receivers = self._tenants.popitem(last=False)
        receiver, entries = receivers.popitem(last=False)
        entry, _ = entries.popitem(last=False)
        if entries:
            receivers[receiver] = entries
        if receivers:
            self._tenants[tenant] = receivers
        self.count -= 1
        return entry

    def remove(self, receiver: str, entry: T) -> None:
        """Remove an entry without a turn; all others keep theirs."""
        tenant = tenant_of(receiver)
        receivers = self._tenants[tenant]
        entries = receivers[receiver]
        del entries[entry]
        if not entries:
            del receivers[receiver]
        if not receivers:
            del self._tenants[tenant]
        self.count -= 1


class SlotLimit(Generic[T]):
    """A bounded number of slots, and the queue for them. No attempt waits while a slot is free."""

    __slots__ = ("capacity", "queue", "taken")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.taken = 0
        self.queue: TurnQueue[Waiter[T]] = TurnQueue()


class Waiter(Generic[T]):
    """An attempt that needs a slot at a host and an overall one; the future is done once it has both.

    - `accepts_idle_of`: the key of an idle connection that it would take instead of a slot.
    - `received`: that connection, once it was given.
    - `queue`: the one in which it waits, if any.
    """

    __slots__ = ("accepts_idle_of", "future", "host", "queue", "received", "receiver")

    def __init__(
        self, future: asyncio.Future[None], receiver: str, host: SlotLimit[T], accepts_idle_of: object = None
    ) -> None:
        self.future = future
        self.receiver = receiver
        self.host = host
        self.accepts_idle_of = accepts_idle_of
        self.received: T | None = None
        self.queue: TurnQueue[Waiter[T]] | None = None

    def wake(self) -> None:
        """Let the attempt continue. One that was cancelled at the same moment withdraws when it wakes."""
        if not self.future.done():
            self.future.set_result(None)


class ConnectionSlots(Generic[T]):
    """Gives slots within both bounds, in turns."""

    def __init__(self, whole: SlotLimit[T]) -> None:
        self._whole = whole

    def enter(self, waiter: Waiter[T]) -> None:
        """Take both slots, or queue for the first one that is not free."""
        if waiter.host.taken < waiter.host.capacity:
            waiter.host.taken += 1
            self._enter_whole(waiter)
        else:
            _queue_up(waiter, waiter.host.queue)

    def leave(self, host: SlotLimit[T]) -> None:
        """Give up both slots to the attempts whose turn it is."""
        if self._whole.queue.count:
            _next_waiter(self._whole.queue).wake()
        else:
            self._whole.taken -= 1
        self._leave_host(host)

    def give(self, bound: SlotLimit[T], idle: T, key: object) -> bool:
        """Give an idle connection to the first in the queue if it accepts this key; it then has no slot."""
        queue = bound.queue
        if not queue.count:
            return False
        first = queue.first()
        if first.accepts_idle_of != key or first.future.done():
            return False
        _next_waiter(queue)
        if bound is self._whole:
            self._leave_host(first.host)
        first.received = idle
        first.wake()
        return True

    def withdraw(self, waiter: Waiter[T]) -> None:
        """Give up both slots, or the place in the queue; not if it was given a connection."""
        queue, waiter.queue = waiter.queue, None
        if queue is None:
            self.leave(waiter.host)
            return
        queue.remove(waiter.receiver, waiter)
        if queue is self._whole.queue:
            self._leave_host(waiter.host)

    def _enter_whole(self, waiter: Waiter[T]) -> None:
        if self._whole.taken < self._whole.capacity:
            self._whole.taken += 1
            waiter.wake()
        else:
            _queue_up(waiter, self._whole.queue)

    def _leave_host(self, host: SlotLimit[T]) -> None:
        if host.queue.count:
            self._enter_whole(_next_waiter(host.queue))
        else:
            host.taken -= 1


def _queue_up(waiter: Waiter[T], queue: TurnQueue[Waiter[T]]) -> None:
    waiter.queue = queue
    queue.add(waiter.receiver, waiter)


def _next_waiter(queue: TurnQueue[Waiter[T]]) -> Waiter[T]:
    """Remove the first waiter from a queue."""
    waiter = queue.take()
    waiter.queue = None
    return waiter
