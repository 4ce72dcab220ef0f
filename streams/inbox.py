"""What a shard has to do: the messages of its consumer, in the order of the stream, from its floor on.

Whatever could have broken the order is a gap (`streams.pull`), and each gap means RESET to the floor, by an
owner within its lease. Nothing is recovered from acks, so a message may come any number of times; actors
recognise by its position what they have seen. Acks only tell the server that it may hand out more.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from actors.event import Event
from streams.delivered import ACK
from streams.errors import ApiError, Disconnected, Unavailable
from streams.jetstream import CONSUMER_NOT_FOUND, JetStream
from streams.messages import event_of, place, receiver_problem
from streams.pull import Puller, rewind
from streams.repeat import Pauses
from streams.topology import GROUP, Names, shard_consumer
from streams.wire import Message

log = logging.getLogger(__name__)


class Inbox:
    """Of one shard, under one claim.

    `on_event` gets the receiver, the event and the reply subject that `ack` will want. `on_malformed` gets
    what no receiver can be called: the two tokens of the subject, position, reply subject and why. Neither
    may raise. `on_broken` hears why nothing will come any more. `floor` must not exceed what the confirmed
    journal says. `created` is when the stream was made that the floor speaks of; without it, the one that is
    found first. `received` is the highest position handed on since the last RESET (the floor, if none was),
    `resets` counts them.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        shard: int,
        *,
        on_event: Callable[[str, Event, str], None],
        on_malformed: Callable[[str, int, str, str], None],
        on_broken: Callable[[str], None],
        may_reset: Callable[[], bool],
        floor: Callable[[], int],
        created: str = "",
    ) -> None:
        self.received = 0
        self.resets = 0
        self._js = js
        self._names = names
        self._shard = shard
        self._consumer: str = shard_consumer(names, shard)["durable_name"]
        self._on_event = on_event
        self._on_malformed = on_malformed
        self._on_broken = on_broken
        self._may_reset = may_reset
        self._floor = floor
        self._prefix = len(names.delivery(shard, ""))
        self._created = created
        self._gapped = asyncio.Event()
        self._acks: list[str] = []
        self._acked = asyncio.Event()
        self._puller: Puller | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin. The first message comes after the first RESET, which waits for the server and the lease."""
        self._tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._send_acks())]
        for task in self._tasks:
            task.add_done_callback(self._on_end)

    async def stop(self) -> None:
        """Hand on nothing more, and send the acks that are due. Does nothing the second time."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._puller is not None:
            await self._puller.stop()
        await self._flush_acks()

    def ack(self, replies: list[str]) -> None:
        """Ack these messages soon. Only what the confirmed journal releases may be acked."""
        self._acks += replies
        self._acked.set()

    async def _read(self) -> None:
        """From RESET to gap, over and over. A run that came no further than others is followed by a pause."""
        pauses, furthest = Pauses(), 0
        while True:
            self._gapped.clear()
            self.received = await self._rewind()
            self.resets += 1
            self._puller = Puller(
                self._js,
                self._names.deliveries,
                self._consumer,
                group=GROUP,
                on_message=self._on_message,
                on_gap=self._on_gap,
            )
            await self._puller.start()
            await self._gapped.wait()
            await self._puller.stop()
            if self.received > furthest:
                pauses, furthest = Pauses(), self.received
            else:
                await pauses.wait()

    async def _rewind(self) -> int:
        """RESET to the floor, which is returned; it takes as long as it takes."""
        pauses, said = Pauses(), ""
        while True:
            floor = self._floor()
            why = await self._try_to_rewind(floor) if self._may_reset() else "the lease has lapsed"
            if not why:
                return floor
            if why != said:
                log.warning("inbox.waiting", extra={"shard": self._shard, "why": why})
                said = why
            await pauses.wait()

    async def _try_to_rewind(self, floor: int) -> str:
        """Nothing once it is done, else why it is not."""
        stream = self._names.deliveries
        try:
            info = await self._js.stream_info(stream)
            if info is None:
                return f"the stream {stream} does not exist; run angarium setup"
            self._created = self._created or info.created
            if info.created != self._created or info.last < floor:
                # A RESET beyond the stream's end would silently skip what is published until then.
                return (
                    f"the stream {stream} was made anew or restored: it is of {info.created} and ends at "
                    f"{info.last}, ours was of {self._created} and went to {floor}; run angarium doctor"
                )
            try:
                await rewind(self._js, stream, self._consumer, GROUP, floor + 1)
            except ApiError as error:
                if error.code != CONSUMER_NOT_FOUND:
                    raise
                await self._js.consumer_create(stream, shard_consumer(self._names, self._shard))
                return f"the consumer {self._consumer} was missing and has been made again"
        except (Unavailable, ApiError) as error:
            return str(error)
        return ""

    def _on_message(self, message: Message) -> None:
        if self._gapped.is_set():
            return
        receiver, reply = message.subject[self._prefix :], message.reply
        position, stored_at = place(reply)
        problem = receiver_problem(receiver)
        try:
            if problem:
                self._on_malformed(receiver, position, reply, problem)
            else:
                self._on_event(receiver, event_of(position, stored_at, message.headers, message.data), reply)
        except Exception as error:
            # Whoever goes on behind a message that was lost here would break the order: read it again.
            report = {"message": f"cannot take {receiver} at {position}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(report)
            self._on_gap("a message could not be taken")
            return
        # What was not acked for long comes once more, behind what is newer.
        self.received = max(self.received, position)

    def _on_gap(self, reason: str) -> None:
        log.info("inbox.gap", extra={"shard": self._shard, "why": reason})
        self._gapped.set()

    async def _send_acks(self) -> None:
        while True:
            await self._acked.wait()
            self._acked.clear()
            await self._flush_acks()

    async def _flush_acks(self) -> None:
        replies, self._acks = self._acks, []
        wire = self._js.wire
        # Without a connection they are dropped: a RESET follows, and hands out anew what is not released.
        if wire.connected:
            with contextlib.suppress(Disconnected):
                for reply in replies:
                    await wire.publish(reply, ACK)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("inbox.broken", extra={"shard": self._shard}, exc_info=error)
            self._on_broken("its inbox broke")
