"""Reading one durable consumer in the order of its stream, from RESET to gap, over and over.

Whatever could have broken the order is a gap (`streams.reading.pull`), and each gap means RESET, by an owner
within its lease. A message may come any number of times; who reads recognises by its position what he has
seen.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from actors.errors import Unavailable
from streams.defects import on_defect
from streams.installation.topology import PRIORITY_GROUP
from streams.journal.tails import NO_MARK, Loss, Mark, find_loss, higher
from streams.nats.codes import CONSUMER_NOT_FOUND
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.retry import Complaint, Pauses
from streams.nats.wire import Message
from streams.reading.acks import Acks
from streams.reading.delivered import place
from streams.reading.pull import Puller, rewind

log = logging.getLogger(__name__)


class Reader:
    """A reader of one consumer, under one claim of its shard.

    `on_message` returns the message's position; if it raises, the message is read again. `on_broken` hears
    why nothing will come any more. `after` says behind which position a RESET begins (None: behind the
    server's ack floor). `created` is when the stream was made that positions are known of; without it, the
    one that is found first. `known` tells the highest message that was read from it before, or by other ways;
    `on_lost` hears that it, or what was read here, is not there any more: then nothing will come. `batch`
    messages are asked for at a time. `received` is the highest position handed on since the last RESET (where
    that began, if none was), `resets` counts them. `compared`: the stream was compared with what is known,
    and since then nothing has put the order in doubt.
    """

    def __init__(
        self,
        js: JetStream,
        stream: str,
        consumer: dict[str, Any],
        *,
        on_message: Callable[[Message], int],
        on_broken: Callable[[str], None],
        after: Callable[[], int | None],
        may_reset: Callable[[], bool],
        on_lost: Callable[[Loss], None],
        known: Callable[[], Mark] = lambda: NO_MARK,
        created: str = "",
        batch: int = 1000,
    ) -> None:
        self.received = 0
        self.resets = 0
        self.compared = False
        self._js = js
        self._stream = stream
        self._config = consumer
        self._consumer: str = consumer["durable_name"]
        self._on_message = on_message
        self._on_broken = on_broken
        self._after = after
        self._may_reset = may_reset
        self._on_lost = on_lost
        self._known = known
        self._seen = self._handed_on = NO_MARK
        self._newest = ""
        self._created = created
        self._batch = batch
        self._furthest = 0
        self._held = False
        self._gapped = asyncio.Event()
        self._acks = Acks(js.wire)
        self._puller: Puller | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def mark(self) -> Mark:
        """The highest message that was ever handed on, or known before."""
        if self._newest:
            position, stored_at = place(self._newest)
            self._newest = ""
            if position > self._seen.position:
                self._seen = Mark(position=position, stored_at=stored_at)
        known, seen = self._known(), self._seen
        return seen if seen.position > known.position else known

    async def start(self) -> None:
        """Begin. The first message comes after the first RESET, which waits for the server and the lease."""
        self._tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._acks.run())]
        for task in self._tasks:
            task.add_done_callback(on_defect("reader", self._on_broken))

    async def stop(self) -> None:
        """Hand on nothing more, and send the acks that are due. Does nothing the second time."""
        tasks, self._tasks = self._tasks, []
        self._doubt()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._puller is not None:
            await self._puller.stop()
        await self._acks.flush()

    def ack(self, replies: list[str]) -> None:
        """Ack these messages soon."""
        self._acks.add(replies)

    def hold(self, held: bool) -> None:
        """Ask for no more messages, or for more again. What was asked for already still comes."""
        self._held = held
        if self._puller is not None:
            self._puller.hold(held)

    async def _read(self) -> None:
        """Read from RESET to gap, over and over, pausing after a run that came no further than others."""
        pauses = Pauses(self._js)
        while True:
            self._gapped.clear()
            begins = await self._rewind()
            if isinstance(begins, Loss):
                self._on_lost(begins)
                return
            self.received = begins
            self.resets += 1
            self.compared = True
            self._puller = Puller(
                self._js,
                self._stream,
                self._consumer,
                group=PRIORITY_GROUP,
                batch=self._batch,
                on_message=self._take,
                on_gap=self._on_gap,
            )
            self._puller.hold(self._held)
            await self._puller.start()
            await self._gapped.wait()
            await self._puller.stop()
            if self.received > self._furthest:
                pauses, self._furthest = Pauses(self._js), self.received
            else:
                await pauses.wait()

    async def _rewind(self) -> int | Loss:
        """RESET, however long it takes. Returns the position after which it begins."""
        pauses = Pauses(self._js)
        complaint = Complaint(self._js, log, "reader.waiting", consumer=self._consumer)
        while True:
            begins = await self._try_to_rewind() if self._may_reset() else "the lease has expired"
            if not isinstance(begins, str):
                return begins
            complaint.tell(begins)
            await pauses.wait()

    async def _try_to_rewind(self) -> int | Loss | str:
        """Finds where it begins, or why it cannot."""
        stream, after = self._stream, self._after()
        try:
            info = await self._js.stream_info(stream)
            if info is None:
                return f"the stream {stream} does not exist; run angarium setup"
            self._created = self._created or info.created
            if info.created != self._created:
                # What is published from now on would take positions that we know already.
                return (
                    f"the stream {stream} was recreated, or restored to an older state: ours was created "
                    f"{self._created} and reached position {max(self.mark.position, after or 0)}; "
                    f"see angarium doctor"
                )
            # The server may have restarted under us, and without its last messages.
            known = higher(self.mark, Mark(position=after or 0))
            for mark in dict.fromkeys((self._handed_on, known)):
                if (loss := await find_loss(self._js, stream, mark)) is not None:
                    return loss
            if not self._may_reset():
                return "the lease has expired"
            wanted = None if after is None else after + 1
            try:
                return await rewind(self._js, stream, self._consumer, PRIORITY_GROUP, wanted) - 1
            except ApiError as error:
                if error.code != CONSUMER_NOT_FOUND:
                    raise
                await self._js.consumer_create(stream, self._config)
                return f"the consumer {self._consumer} was missing and was created again"
        except (Unavailable, ApiError) as error:
            return str(error)

    def _take(self, message: Message) -> None:
        if not self.compared:
            return  # It came after a gap.
        try:
            position = self._on_message(message)
        except Exception as error:
            # To go on behind a message that was lost here would break the order: read it again.
            report = {"message": f"cannot process {message.subject} ({message.reply})", "exception": error}
            asyncio.get_running_loop().call_exception_handler(report)
            self._on_gap("a message could not be processed")
            return
        # What was not acked for long comes once more, behind what is newer.
        if position > self.received:
            self.received, self._newest = position, message.reply

    def _on_gap(self, reason: str) -> None:
        level = logging.DEBUG if self._js.unsettled else logging.INFO
        log.log(level, "reader.gap", extra={"consumer": self._consumer, "why": reason})
        self._doubt()
        self._gapped.set()

    def _doubt(self) -> None:
        """Keep in mind what is known by now: what becomes known later may be of another stream.

        So may be what was read by another reader a moment ago. The server of a stream may restart without its
        tail and without our connection, and its consumer is missed after 3 s only. So what was handed on
        here, under one pin, is compared as well.
        """
        known = self.mark
        if self.compared:
            self._handed_on = self._seen
        self._seen, self.compared = known, False
