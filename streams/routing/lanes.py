"""Lanes: one for each receiver, in which an item is sent only after the one before has arrived.

They keep the order even if messages are lost. The head of a lane is sent again until it has arrived. Lanes
do not wait for each other: if a head is refused, other lanes are served, and its turn comes again.

Tenants take turns, one item each, or as many as their weight says: a tenant with an event for 20,000
receivers delays others by one copy.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from streams.nats.jetstream import JetStream
from streams.nats.retry import Complaint, Pauses
from streams.task_callbacks import on_defect

SENDERS_MAX = 32
"""Lanes served at a time: enough to keep the server busy, and few enough to leave room for others. With 64, a
copy costs a tenth less, but others wait twice as long during an event for 20,000 receivers."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class Lanes(Generic[T]):
    """Items in lanes, sent in order within each lane. A lane is a receiver's: `<tenant>.<name>`.

    - `send(lane, item)`: returns an empty text when the item has arrived, otherwise why that is not known.
    - `arrived(item)`: called once for each item of each lane.
    - `on_broken`: called if a defect leaves items unsent.
    - `weight`: the number of items in one turn of a tenant.
    """

    def __init__(
        self,
        js: JetStream,
        send: Callable[[str, T], Awaitable[str]],
        arrived: Callable[[T], None],
        on_broken: Callable[[str], None],
        weight: Callable[[str], int] = lambda _: 1,
    ) -> None:
        self._js = js
        self._send = send
        self._arrived = arrived
        self._on_broken = on_broken
        self._lanes: dict[str, list[T]] = {}
        self._ready = _Turns(weight)
        self._failing: set[str] = set()
        self._complaint = Complaint(js, log, "routing.waiting")
        self._serving = 0
        self._senders: set[asyncio.Task[None]] = set()

    def add(self, lane: str, item: T) -> None:
        """Put an item at the end of the lane."""
        waiting = self._lanes.get(lane)
        if waiting is not None:
            waiting.append(item)
            return
        self._lanes[lane] = [item]
        self._ready.add(lane)
        if self._serving < SENDERS_MAX:
            self._serving += 1
            sender = asyncio.ensure_future(self._serve())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
            sender.add_done_callback(on_defect("router", self._on_broken))

    async def stop(self) -> None:
        """Send nothing more; it stays unknown whether items under way arrived."""
        senders = list(self._senders)
        for sender in senders:
            sender.cancel()
        if senders:
            await asyncio.wait(senders)

    async def _serve(self) -> None:
        """Send the heads of lanes, one after the other, until none is ready."""
        pauses = Pauses(self._js)
        while self._ready:
            lane = self._ready.next()
            why = await self._send(lane, self._lanes[lane][0])
            if why:
                self._tell(lane, why)
                await pauses.wait()
                self._ready.add(lane)
            else:
                pauses = Pauses(self._js)
                self._move_up(lane)
        # This is not left to the end of the task: an item added before that end is noticed would never be
        # sent.
        self._serving -= 1

    def _move_up(self, lane: str) -> None:
        """Take the head of the lane as arrived."""
        self._failing.discard(lane)
        waiting = self._lanes[lane]
        item = waiting.pop(0)
        if waiting:
            self._ready.add(lane)
        else:
            del self._lanes[lane]
        self._arrived(item)

    def _tell(self, lane: str, why: str) -> None:
        """Log why the lane waits, but not for every lane and not every time."""
        if not self._failing:
            self._complaint.over()
        self._complaint.log_once(why, receiver=lane)
        self._failing.add(lane)


class _Turns:
    """The lanes whose heads are ready to be sent: tenants take turns, and the lanes of each tenant do."""

    def __init__(self, weight: Callable[[str], int]) -> None:
        self._weight = weight
        self._lanes: dict[str, deque[str]] = {}
        self._tenants: deque[str] = deque()
        self._taken = 0

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def add(self, lane: str) -> None:
        tenant = lane.partition(".")[0]
        lanes = self._lanes.get(tenant)
        if lanes is None:
            self._lanes[tenant] = deque((lane,))
            self._tenants.append(tenant)
        else:
            lanes.append(lane)

    def next(self) -> str:
        """Take the lane whose turn it is."""
        tenant = self._tenants[0]
        lanes = self._lanes[tenant]
        lane = lanes.popleft()
        self._taken += 1
        if not lanes:
            self._taken = 0
            del self._lanes[self._tenants.popleft()]
        elif self._taken >= self._weight(tenant):
            self._taken = 0
            self._tenants.rotate(-1)
        return lane
