"""Reads ahead of a flood: events of other tenants, by subject, that the consumer has not come to yet.

A router that is far behind drops thousands of events of a flood before the consumer hands out what other
tenants have published since. So it also asks for their events, in turns, as long as it is behind
(`streams.routing.tenants` says what becomes of them).

The server of the stream may have restarted without its tail, and our connection to another server has stayed:
then a page is of another stream than the consumer's messages. The consumer is in the memory of one server, so
a message of it that arrives after the page proves that it is still there. A page is taken only then.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from actors.errors import Unavailable
from streams.installation.partitions import tenants_of_partition
from streams.nats.answers import StoredMessage
from streams.nats.retry import ReasonLog
from streams.routing.parked_tenants_reader import PAGE_BYTES_MAX
from streams.routing.read_requests import PartitionReads, ReadRequest
from streams.tasks import cancel_and_wait, on_defect

BEHIND_MIN = 512
"""If the consumer has more events than this left to hand out, others are read ahead; 512 pass in 50 ms."""

UNMATCHED_BYTES_MIN = 8 << 20
"""Bytes of events without receivers, since the router fell behind, above which they count as a flood."""

PAUSE_MIN_S = 0.025
PAUSE_MAX_S = 0.1
"""Pause before a tenant is read again, at first and at most; it doubles while nothing is found."""

IDLE_READS_PER_S = 250
"""Reads a second of tenants that publish nothing: with many of them, the longest pause is longer."""

READS_AT_ONCE = 16
"""Reads under way at a time."""

READS_PER_S_MAX = 1600
"""Reads a second, however many tenants have events."""

LISTED_FOR_S = 10.0
"""Time after which the tenants are listed again."""

log = logging.getLogger(__name__)


class AheadReader:
    """The reading ahead in one partition.

    - `next_ahead`: returns what to read next of a tenant, or None.
    - `take_ahead`: takes its messages.
    - `tenants`: returns the tenants that have receivers, of all `partitions`.
    """

    def __init__(
        self,
        reads: PartitionReads,
        *,
        tenants: Callable[[], Sequence[str]],
        partitions: int,
        next_ahead: Callable[[str], ReadRequest | None],
        take_ahead: Callable[[ReadRequest, Sequence[StoredMessage]], None],
    ) -> None:
        self._reads = reads
        self._tenants = tenants
        self._partitions = partitions
        self._next_ahead = next_ahead
        self._take_ahead = take_ahead
        self._behind = asyncio.Event()
        self._arrived = asyncio.Event()
        self._unmatched_bytes = 0
        self._reason_log = ReasonLog(reads.js, log, "routing.waiting")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(on_defect("router", self._reads.on_broken))

    async def stop(self) -> None:
        task, self._task = self._task, None
        await cancel_and_wait(task)

    def arrived(self, pending: int, floods: bool) -> None:
        """Note an arrival, and how many are to come; `floods`: a tenant's events are dropped."""
        self._arrived.set()
        if pending <= BEHIND_MIN:
            self._behind.clear()
            self._unmatched_bytes = 0
        elif floods or self._unmatched_bytes >= UNMATCHED_BYTES_MIN:
            self._behind.set()

    def unmatched(self, size: int) -> None:
        """Count an event of this size that no receiver wants.

        Such events park no tenant: they leave memory at once. But to read them takes time, if they are large.
        """
        self._unmatched_bytes += size

    async def next_arrival(self) -> None:
        """Wait until an event arrives after this call."""
        self._arrived.clear()
        await self._arrived.wait()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        here, listed_until = list[str](), loop.time()
        while True:
            await self._behind.wait()
            if loop.time() >= listed_until:
                here, listed_until = await self._list(), loop.time() + LISTED_FOR_S
            if here:
                await self._read_in_turns(here, listed_until)
            else:
                await asyncio.sleep(LISTED_FOR_S)

    async def _list(self) -> list[str]:
        """The tenants of this partition."""
        return await tenants_of_partition(self._tenants(), self._reads.partition, self._partitions)

    async def _read_in_turns(self, tenants: Sequence[str], until: float) -> None:
        """Read while the consumer is behind, but not for longer than `until`."""
        loop = asyncio.get_running_loop()
        pause_max_s = max(PAUSE_MAX_S, len(tenants) / IDLE_READS_PER_S)
        turns = [(loop.time(), PAUSE_MIN_S, tenant) for tenant in tenants]

        async def read_some() -> None:
            while self._behind.is_set() and loop.time() < until:
                at, pause_s, tenant = heappop(turns)
                await asyncio.sleep(max(at - loop.time(), READS_AT_ONCE / READS_PER_S_MAX))
                found = await self._read(tenant)
                pause_s = PAUSE_MIN_S if found else min(2 * pause_s, pause_max_s)
                heappush(turns, (loop.time() + pause_s, pause_s, tenant))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(READS_AT_ONCE, len(tenants))):
                group.create_task(read_some())

    async def _read(self, tenant: str) -> bool:
        """Read a part of a tenant's events; returns whether there were any."""
        reads, request = self._reads, self._next_ahead(tenant)
        consumer = reads.reader.trusted_consumer
        if consumer is None or request is None:
            return False
        subject = reads.names.event(reads.partition, tenant, ">")
        try:
            async with reads.read_slots:
                page = await reads.js.read(
                    reads.names.events, subject, request.above + 1, request.count_max, PAGE_BYTES_MAX
                )
        except Unavailable as error:
            self._reason_log.log_once(f"events cannot be read ahead: {error}")
            return False
        if not page.messages:
            return False
        await self.next_arrival()
        if reads.reader.trusted_consumer == consumer:
            self._take_ahead(request, page.messages)
        return True
