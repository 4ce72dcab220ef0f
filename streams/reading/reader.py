"""Reads one durable consumer in the order of its stream, from RESET to gap, over and over.

Everything that could have broken the order is a gap (`streams.reading.pull`). After each gap, the owner
resets the consumer, if its lease is valid. A message may come any number of times; the handler recognises by
its position whether it has seen it.
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

    - `on_message`: returns the message's position; if it raises, the message is read again.
    - `on_broken`: called with the reason why nothing will come any more.
    - `on_lost`: called if a known message is gone from the stream; nothing will come any more.
    - `after`: returns the position after which a RESET begins (None: after the server's ack floor).
    - `created`: when the stream with the known positions was created; empty to accept the one that is found
      first.
    - `known`: returns the highest message that was read from the stream before, or in other ways.
    - `batch`: number of messages that are requested at a time.
    - `received`: the highest position passed on since the last RESET, or the one where that began.
    - `resets`: the number of RESETs.
    - `compared`: the stream was compared with the known messages, and nothing has put the order in doubt
      since.
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
        """The highest message that was ever passed on, or known before."""
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
        """Pass on nothing more, and send the acks that are due. A second call does nothing."""
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
        """Request no more messages, or go on. Messages that were requested before still come."""
        self._held = held
        if self._puller is not None:
            self._puller.hold(held)

    async def _read(self) -> None:
        """Read from RESET to gap, over and over; pause after a run that got no further than earlier ones."""
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
                on_message=self._pass_on,
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
        """RESET once; returns the position after which it begins, or why that failed."""
        stream, after = self._stream, self._after()
        try:
            info = await self._js.stream_info(stream)
            if info is None:
                return f"the stream {stream} does not exist; run angarium setup"
            self._created = self._created or info.created
            if info.created != self._created:
                # Messages that are published from now on would get positions that we know already.
                return (
                    f"the stream {stream} was recreated, or restored to an older state: ours was created "
                    f"{self._created} and reached position {max(self.mark.position, after or 0)}; "
                    f"see angarium doctor"
                )
            # The server may have restarted meanwhile, and lost its last messages.
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

    def _pass_on(self, message: Message) -> None:
        if not self.compared:
            return  # It came after a gap.
        try:
            position = self._on_message(message)
        except Exception as error:
            # Going on after a message that was lost here would break the order: read it again.
            report = {"message": f"cannot process {message.subject} ({message.reply})", "exception": error}
            asyncio.get_running_loop().call_exception_handler(report)
            self._on_gap("a message could not be processed")
            return
        # A message that was not acked for long comes again, after newer ones.
        if position > self.received:
            self.received, self._newest = position, message.reply

    def _on_gap(self, reason: str) -> None:
        level = logging.DEBUG if self._js.unsettled else logging.INFO
        log.log(level, "reader.gap", extra={"consumer": self._consumer, "why": reason})
        self._doubt()
        self._gapped.set()

    def _doubt(self) -> None:
        """Remember the messages that are known now: later ones may be of another stream.

        Even messages that another reader has just read may be. The server of a stream may restart without its
        tail while our connection to another server stays, and the consumer's silence is noticed only after
        3 s. So messages that were passed on here, under one pin, are compared as well.
        """
        known = self.mark
        if self.compared:
            self._handed_on = self._seen
        self._seen, self.compared = known, False
