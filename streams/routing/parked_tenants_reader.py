"""Reads the events of parked tenants by subject, one page at a time, in turns (`streams.routing.tenants`).

One reader reads what is to be routed, another what is evicted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from actors.errors import Unavailable
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses, ReasonLog
from streams.reading.backlog import next_messages
from streams.reading.reader import Reader
from streams.routing.read_requests import ReadRequest
from streams.tasks import cancel_and_wait, on_defect

PAGE_BYTES_MAX = 256 << 10
"""Bytes of one page: as much as a tenant may have in memory."""

log = logging.getLogger(__name__)


class ParkedTenantsReader:
    """The reading of parked tenants' events of one partition.

    - `next_read`: returns what to read next, or None; `wake` says that this may have changed.
    - `take_read`: takes the messages, and whether these are all that were requested; the next page is read
      when it has taken them.
    - `reader`: reads the partition. The messages are dropped if the reader doubts that the stream is the one
      that it knows.
    - `at_once`: shared by all reads of a node.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        partition: int,
        *,
        reader: Reader,
        at_once: asyncio.Semaphore,
        replicated: bool,
        next_read: Callable[[], ReadRequest | None],
        take_read: Callable[[ReadRequest, Sequence[StoredMessage], bool], Awaitable[None]],
        on_broken: Callable[[str], None],
    ) -> None:
        self._js = js
        self._names = names
        self._partition = partition
        self._reader = reader
        self._at_once = at_once
        self._replicated = replicated
        self._next_read = next_read
        self._take_read = take_read
        self._on_broken = on_broken
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(on_defect("router", self._on_broken))
        self.wake()

    async def stop(self) -> None:
        task, self._task = self._task, None
        await cancel_and_wait(task)

    def wake(self) -> None:
        """Look again for something to read."""
        self._woken.set()

    async def _run(self) -> None:
        pauses, reason_log = Pauses(self._js), ReasonLog(self._js, log, "routing.waiting")
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
                    pauses = Pauses(self._js)
                else:
                    await pauses.wait()

    async def _read(self, request: ReadRequest) -> bool:
        """Read one page; False if it cannot be used. Raises `Unavailable`."""
        js, names, reader = self._js, self._names, self._reader
        consumer = reader.trusted_consumer
        if consumer is None:
            return False
        async with self._at_once:
            found = await next_messages(
                js,
                names.events,
                names.event(self._partition, request.tenant, ">"),
                request.above,
                request.up_to,
                request.count_max,
                PAGE_BYTES_MAX,
                replicated=self._replicated,
            )
        if reader.trusted_consumer != consumer:
            return False
        complete = not found or found[-1].sequence >= request.up_to
        await self._take_read(request, [each for each in found if each.sequence <= request.up_to], complete)
        return True
