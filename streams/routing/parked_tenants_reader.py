"""Reads the events of parked tenants by subject, one page at a time, in turns (`streams.routing.tenants`).

One reader reads what is to be routed, another what is evicted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from actors.errors import Unavailable
from streams.nats.answers import StoredMessage
from streams.nats.retry import Pauses, ReasonLog
from streams.reading.backlog import next_messages
from streams.routing.read_requests import PartitionReads, ReadRequest
from streams.tasks import cancel_and_wait, on_defect

PAGE_BYTES_MAX = 256 << 10
"""Bytes of one page: as much as a tenant may have in memory."""

log = logging.getLogger(__name__)


class ParkedTenantsReader:
    """The reading of parked tenants' events of one partition.

    - `next_read`: returns what to read next, or None; `wake` says that this may have changed.
    - `take_read`: takes the messages, and whether these are all that were requested; the next page is read
      when it has taken them.

    The messages are dropped if the reader of the partition doubts that the stream is the one that it knows.
    """

    def __init__(
        self,
        reads: PartitionReads,
        *,
        replicated: bool,
        next_read: Callable[[], ReadRequest | None],
        take_read: Callable[[ReadRequest, Sequence[StoredMessage], bool], Awaitable[None]],
    ) -> None:
        self._reads = reads
        self._replicated = replicated
        self._next_read = next_read
        self._take_read = take_read
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(on_defect("router", self._reads.on_broken))
        self.wake()

    async def stop(self) -> None:
        task, self._task = self._task, None
        await cancel_and_wait(task)

    def wake(self) -> None:
        """Look again for something to read."""
        self._woken.set()

    async def _run(self) -> None:
        js = self._reads.js
        pauses, reason_log = Pauses(js), ReasonLog(js, log, "routing.waiting")
        while True:
            await self._woken.wait()
            self._woken.clear()
            while (request := self._next_read()) is not None:
                try:
                    done = await self._read(request)
                except Unavailable as error:
                    reason_log.log_once(f"parked events cannot be read: {error}", tenant=request.tenant)
                    done = False
                if done:
                    pauses = Pauses(js)
                else:
                    await pauses.wait()

    async def _read(self, request: ReadRequest) -> bool:
        """Read one page; False if it cannot be used. Raises `Unavailable`."""
        reads = self._reads
        names, consumer = reads.names, reads.reader.trusted_consumer
        if consumer is None:
            return False
        async with reads.read_slots:
            found = await next_messages(
                reads.js,
                names.events,
                names.event(reads.partition, request.tenant, ">"),
                request.above,
                request.up_to,
                request.count_max,
                PAGE_BYTES_MAX,
                replicated=self._replicated,
            )
        if reads.reader.trusted_consumer != consumer:
            return False
        complete = not found or found[-1].position >= request.up_to
        await self._take_read(request, [each for each in found if each.position <= request.up_to], complete)
        return True
