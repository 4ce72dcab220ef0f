"""Lanes: one for each receiver, in which an item is sent only after the one before has arrived.

They keep the order even if messages are lost. The head of a lane is sent again until it has arrived. Lanes
do not wait for each other: if a head is refused, other lanes are served, and its turn comes again.

Tenants take turns, one item each, or as many as their weight says: a tenant with an event for 20,000
receivers delays others by one copy.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from actors.ids import tenant_of
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses, ReasonLog
from streams.tasks import cancel_and_wait, on_defect, report_defect

SENDERS_MAX = 32
"""Lanes served at a time: enough to keep the server busy, and few enough to leave room for others. With 64, a
copy costs a tenth less, but others wait twice as long during an event for 20,000 receivers."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class CopySlots:
    """Slots for the items that all lanes of a node may have under way, given in the order of the requests."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_serving_soon = False

    def take(self, when_free: Callable[[], None]) -> bool:
        """Take a slot; if there is none, returns False, and calls `when_free` once, when there may be one."""
        if not self._free:
            self._waiting.append(when_free)
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        """Give a slot back that was taken."""
        self._free += 1
        if self._waiting and not self._is_serving_soon:
            self._is_serving_soon = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Call those that wait; one that needs no slot any more leaves it to the next."""
        self._is_serving_soon = False
        while self._free and self._waiting:
            self._waiting.popleft()()


class Lanes(Generic[T]):
    """Items in lanes, sent in order within each lane. A lane is a receiver's: `<tenant>.<name>`.

    - `begin(lane, item, ended)`: begins to send, and calls `ended` once, possibly before it returns: with an
      empty text when the item has arrived, otherwise with the reason why that is not known.
    - `arrived(item)`: called once for each item of each lane.
    - `on_broken`: called if a defect leaves items unsent.
    - `slots`: shared by all lanes of a node.
    - `weight`: the number of items in one turn of a tenant.
    """

    def __init__(
        self,
        js: JetStream,
        begin: Callable[[str, T, Callable[[str], None]], None],
        arrived: Callable[[T], None],
        on_broken: Callable[[str], None],
        slots: CopySlots,
        weight: Callable[[str], int] = lambda _: 1,
    ) -> None:
        self._js = js
        self._begin = begin
        self._arrived = arrived
        self._on_broken = on_broken
        self._slots = slots
        self._lanes: dict[str, list[T]] = {}
        self._ready = _ReadyLanes(weight)
        self._failing: set[str] = set()
        self._reason_log = ReasonLog(js, log, "routing.waiting")
        self._senders = [Pauses(js) for _ in range(SENDERS_MAX)]
        self._pausing: set[asyncio.Task[None]] = set()
        self._is_sending_soon = self._is_waiting_for_slot = self._is_stopped = False

    def add(self, lane: str, item: T) -> None:
        """Put an item at the end of the lane."""
        waiting = self._lanes.get(lane)
        if waiting is not None:
            waiting.append(item)
            return
        self._lanes[lane] = [item]
        self._ready.add(lane)
        self._send_soon()

    async def stop(self) -> None:
        """Send nothing more; it stays unknown whether items under way arrived."""
        self._is_stopped = True
        await cancel_and_wait(*self._pausing)

    def _send_soon(self) -> None:
        """Send the ready heads in the next turn of the loop, so that many go in one write."""
        if not self._is_sending_soon:
            self._is_sending_soon = True
            asyncio.get_running_loop().call_soon(self._send_ready)

    def _send_ready(self) -> None:
        """Begin to send the heads of lanes that are ready, as many as there are senders and slots for."""
        self._is_sending_soon = False
        while self._ready and self._senders and not (self._is_waiting_for_slot or self._is_stopped):
            if not self._slots.take(self._slot_is_free):
                self._is_waiting_for_slot = True
                return
            lane, sender = self._ready.next(), self._senders.pop()
            try:
                self._begin(lane, self._lanes[lane][0], partial(self._ended, lane, sender))
            except Exception as error:
                self._slots.give_back()
                report_defect("router", self._on_broken, error)

    def _slot_is_free(self) -> None:
        self._is_waiting_for_slot = False
        self._send_ready()

    def _ended(self, lane: str, sender: Pauses, why: str) -> None:
        """Let the sender serve the next lane; after a failure, when it has paused."""
        self._slots.give_back()
        if self._is_stopped:
            return
        if why:
            self._log_waiting(lane, why)
            pausing = asyncio.ensure_future(self._pause(lane, sender))
            self._pausing.add(pausing)
            pausing.add_done_callback(self._pausing.discard)
            pausing.add_done_callback(on_defect("router", self._on_broken))
            return
        sender.begin_again()
        self._senders.append(sender)
        self._send_soon()
        try:
            self._move_up(lane)
        except Exception as error:
            report_defect("router", self._on_broken, error)

    async def _pause(self, lane: str, sender: Pauses) -> None:
        await sender.wait()
        self._ready.add(lane)
        self._senders.append(sender)
        self._send_soon()

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

    def _log_waiting(self, lane: str, why: str) -> None:
        """Log why the lane waits, but not for every lane and not every time."""
        if not self._failing:
            self._reason_log.clear()
        self._reason_log.log_once(why, receiver=lane)
        self._failing.add(lane)


class _ReadyLanes:
    """The lanes whose heads are ready to be sent: tenants take turns, and the lanes of each tenant do."""

    def __init__(self, weight: Callable[[str], int]) -> None:
        self._weight = weight
        self._lanes: dict[str, deque[str]] = {}
        self._tenants: deque[str] = deque()
        self._taken = 0

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def add(self, lane: str) -> None:
        tenant = tenant_of(lane)
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
