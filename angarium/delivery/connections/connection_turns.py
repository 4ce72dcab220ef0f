"""Turns for scarce places: tenants take turns, so do the receivers of each, and attempts keep their order.

While a tenant waits for its turn, each other tenant gets one at most, however many attempts it has waiting;
the same holds for the receivers of a tenant (docs/decisions/turns-for-connections.md).

There are two bounds, one for each host and one for all. A place that becomes free is assigned in the same
call, so no newer attempt can take it. An attempt that waits for the overall bound keeps its place at the host
meanwhile, so no attempt ever goes back to a queue that it has left.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Line(Generic[T]):
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
        tenant = receiver.partition(".")[0]
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
        tenant = receiver.partition(".")[0]
        receivers = self._tenants[tenant]
        entries = receivers[receiver]
        del entries[entry]
        if not entries:
            del receivers[receiver]
        if not receivers:
            del self._tenants[tenant]
        self.count -= 1


class Bound(Generic[T]):
    """A bounded number of places, and the queue for them. No attempt waits while a place is free."""

    __slots__ = ("line", "most", "taken")

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self.line: Line[Waiter[T]] = Line()


class Waiter(Generic[T]):
    """An attempt that needs a place at a host and an overall one; the future is done once it has both.

    - `instead`: the name of a thing that it would accept instead.
    - `given`: that thing, once it was given.
    - `line`: the queue in which it waits, if any.
    """

    __slots__ = ("future", "given", "host", "instead", "line", "receiver")

    def __init__(
        self, future: asyncio.Future[None], receiver: str, host: Bound[T], instead: object = None
    ) -> None:
        self.future = future
        self.receiver = receiver
        self.host = host
        self.instead = instead
        self.given: T | None = None
        self.line: Line[Waiter[T]] | None = None

    def tell(self) -> None:
        """Let the attempt continue. One that was cancelled at the same moment withdraws when it wakes."""
        if not self.future.done():
            self.future.set_result(None)


class Places(Generic[T]):
    """Gives places within both bounds, in turns."""

    def __init__(self, whole: Bound[T]) -> None:
        self._whole = whole

    def enter(self, waiter: Waiter[T]) -> None:
        """Take both places, or queue for the first one that is not free."""
        if waiter.host.taken < waiter.host.most:
            waiter.host.taken += 1
            self._enter_whole(waiter)
        else:
            _stand(waiter, waiter.host.line)

    def leave(self, host: Bound[T]) -> None:
        """Give up both places to the attempts whose turn it is."""
        if self._whole.line.count:
            _called(self._whole.line).tell()
        else:
            self._whole.taken -= 1
        self._leave_host(host)

    def give(self, bound: Bound[T], thing: T, name: object) -> bool:
        """Give a thing of that name to the first in the queue if it waits for one; it then has no place."""
        line = bound.line
        if not line.count:
            return False
        first = line.first()
        if first.instead != name or first.future.done():
            return False
        _called(line)
        if bound is self._whole:
            self._leave_host(first.host)
        first.given = thing
        first.tell()
        return True

    def withdraw(self, waiter: Waiter[T]) -> None:
        """Give up both places, or the place in the queue; not for an attempt that was given `instead`."""
        line, waiter.line = waiter.line, None
        if line is None:
            self.leave(waiter.host)
            return
        line.remove(waiter.receiver, waiter)
        if line is self._whole.line:
            self._leave_host(waiter.host)

    def _enter_whole(self, waiter: Waiter[T]) -> None:
        if self._whole.taken < self._whole.most:
            self._whole.taken += 1
            waiter.tell()
        else:
            _stand(waiter, self._whole.line)

    def _leave_host(self, host: Bound[T]) -> None:
        if host.line.count:
            self._enter_whole(_called(host.line))
        else:
            host.taken -= 1


def _stand(waiter: Waiter[T], line: Line[Waiter[T]]) -> None:
    waiter.line = line
    line.add(waiter.receiver, waiter)


def _called(line: Line[Waiter[T]]) -> Waiter[T]:
    """Remove the first waiter from a line."""
    waiter = line.take()
    waiter.line = None
    return waiter
