"""Reads a part of a stream in order, with one consumer after another.

A consumer is in the memory of one server, made for one claim: `shard-<n>-<epoch>`, and, after each gap
(`streams.reading.pull`), `shard-<n>-<epoch>-<k>`. Only its owner knows its name, and nothing is recovered
from it: each begins where the journal says. A message may come any number of times; the handler recognises by
its position whether it has seen it (docs/decisions/a-consumer-for-each-claim.md).
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec import Struct

from actors.errors import Unavailable
from streams.installation.topology import consumer_for_claim
from streams.lost_tails.comparison import Loss, find_loss
from streams.lost_tails.marks import NO_MARK, Mark
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.retry import GatheredReasonLog, Pauses
from streams.nats.wire import Message
from streams.reading.pull import Puller
from streams.reading.pull_room import PullRoom
from streams.reading.read_marks import ReadMarks
from streams.reading.reply_subject import DeliveryInfo
from streams.tasks import cancel_and_wait, on_defect

log = logging.getLogger(__name__)

CONSUMER_TIMEOUT_MIN_S = 1.0
CONSUMER_TIMEOUT_MAX_S = 5.0
"""Time in which a server has to make a consumer, at first and at most; each failed attempt doubles it.

A consumer is on one server. For some time the others may still choose one that was killed, which never
answers; for a new name they choose again.
"""


class ReadingTerms(Struct, frozen=True, kw_only=True):
    """The terms on which the owner of a shard has a stream read.

    - `may_read`: asked before each consumer is made.
    - `on_broken`: called with the reason why nothing will come any more.
    - `on_lost`: called if a known message is gone from the stream; nothing will come any more.
    - `created`: when the stream with the known positions was created; empty to accept the one that is found
      first.
    - `room`: for requested messages, that of the connection.
    """

    may_read: Callable[[], bool]
    on_broken: Callable[[str], None]
    on_lost: Callable[[Loss], None]
    created: str = ""
    room: PullRoom


class Reader:
    """A reader under one claim of a shard.

    - `consumer_name`: the name of its first consumer, which contains the claim's epoch.
    - `subjects`: the subjects that it reads.
    - `on_message`: takes a message and the content of its reply subject; if it raises, the message is read
      again.
    - `after`: returns the position after which a new consumer begins; the journal must hold that nothing up
      to there is needed.
    - `known_mark`: returns the highest message that was read from the stream before, or in other ways.
    - `batch`: number of messages that are requested at a time; `more` returns how many may be besides.
    - `received`: the highest position that the current consumer passed on, or the one where it began.
    - `consumers`: the number of consumers so far.
    - `unread`: how many messages the server had left to hand out with the newest one; none are read while
      requests are paused, so then it may be more.
    """

    def __init__(
        self,
        js: JetStream,
        stream: str,
        consumer_name: str,
        subjects: str,
        terms: ReadingTerms,
        *,
        on_message: Callable[[Message, DeliveryInfo], None],
        after: Callable[[], int],
        known_mark: Callable[[], Mark] = lambda: NO_MARK,
        batch: int = 1000,
        more: Callable[[], int] = lambda: 0,
    ) -> None:
        self.received = 0
        self.consumers = 0
        self.unread = 0
        self._js = js
        self._stream = stream
        self._consumer_name = consumer_name
        self._subjects = subjects
        self._consumer = ""
        self._made = 0
        self._on_message = on_message
        self._terms = terms
        self._after = after
        self._known_mark = known_mark
        self._marks = ReadMarks()
        self._created = terms.created
        self._batch = batch
        self._more = more
        self._furthest_before = 0
        self._pulling_paused = False
        self._gapped = asyncio.Event()
        self._puller: Puller | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def mark(self) -> Mark:
        """The highest message that was ever passed on, or known before."""
        return self._marks.highest(self._known_mark())

    @property
    def is_compared(self) -> bool:
        """True if the stream was compared, and nothing has put the order in doubt since."""
        return self._marks.is_compared

    @property
    def trusted_consumer(self) -> int | None:
        """The number of the current consumer, or None if the stream has to be compared first."""
        return self.consumers if self.is_compared else None

    def note(self, mark: Mark) -> None:
        """Note a message that was read in another way: the present consumer has the same stream."""
        self._marks.note(mark)

    async def start(self) -> None:
        """Begin. The first message comes once a consumer is made, which waits for server and lease."""
        self._reading = asyncio.ensure_future(self._read())
        self._reading.add_done_callback(on_defect("reader", self._terms.on_broken))

    async def stop(self) -> None:
        """Pass on nothing more, and delete the consumer. A second call does nothing."""
        reading, self._reading = self._reading, None
        self._doubt()
        await cancel_and_wait(reading)
        if self._puller is not None:
            await self._puller.stop()
        self._delete()

    def ack(self, position: int) -> None:
        """Ack all messages up to the position, which must be released by the confirmed journal."""
        if self._puller is not None:
            self._puller.ack(position)

    def set_pulling_paused(self, paused: bool) -> None:
        """Stop sending requests, or send them again. Messages already requested still come."""
        self._pulling_paused = paused
        if self._puller is not None:
            self._puller.set_pulling_paused(paused)

    async def _read(self) -> None:
        """Read with one consumer after the other; pause after one that got no further than earlier ones."""
        pauses = Pauses(self._js)
        while True:
            self._gapped.clear()
            begins = await self._new_consumer()
            if isinstance(begins, Loss):
                self._terms.on_lost(begins)
                return
            self.received = begins
            self.consumers += 1
            self._marks.is_compared = True
            self._puller = Puller(
                self._js,
                self._stream,
                self._consumer,
                room=self._terms.room,
                batch=self._batch,
                more=self._more,
                on_message=self._pass_on,
                on_gap=self._on_gap,
            )
            self._puller.set_pulling_paused(self._pulling_paused)
            await self._puller.start()
            await self._gapped.wait()
            await self._puller.stop()
            self._delete()
            if self.received > self._furthest_before:
                pauses, self._furthest_before = Pauses(self._js), self.received
            else:
                await pauses.wait()

    async def _new_consumer(self) -> int | Loss:
        """Make a consumer; retries until there is one. Returns the position after which it begins."""
        pauses = Pauses(self._js)
        reason_log = GatheredReasonLog(self._js, log, "reader.waiting", consumer=self._consumer_name)
        timeout_s = CONSUMER_TIMEOUT_MIN_S
        while True:
            begins = (
                await self._try_a_consumer(timeout_s) if self._terms.may_read() else "the lease has expired"
            )
            if not isinstance(begins, str):
                return begins
            timeout_s = min(2 * timeout_s, CONSUMER_TIMEOUT_MAX_S)
            reason_log.log_once(begins)
            await pauses.wait()

    async def _try_a_consumer(self, timeout_s: float) -> int | Loss | str:
        """Make a consumer; returns the position after which it begins, or why that failed."""
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
                    f"{self._created} and reached position {max(self.mark.position, after)}; "
                    f"see angarium doctor"
                )
            # The server may have restarted meanwhile, and lost its last messages.
            for mark in self._marks.to_compare(self._known_mark(), after):
                if (loss := await find_loss(self._js, stream, mark)) is not None:
                    return loss
            if not self._terms.may_read():
                return "the lease has expired"
            self._consumer = self._next_name()
            wanted = consumer_for_claim(self._consumer, self._subjects, after + 1)
            await self._js.consumer_create(stream, wanted, timeout_s)
        except (Unavailable, ApiError) as error:
            self._delete()  # It may have been made nevertheless.
            return str(error)
        return after

    def _next_name(self) -> str:
        """A name that was never used: an attempt to make a consumer may succeed later than answered."""
        self._made += 1
        return self._consumer_name if self._made == 1 else f"{self._consumer_name}-{self._made - 1}"

    def _delete(self) -> None:
        """Delete the consumer without waiting: if the server does not hear it, it goes by itself."""
        name, self._consumer = self._consumer, ""
        if name and self._js.wire.is_connected:
            self._js.consumer_delete(self._stream, name)

    def _pass_on(self, message: Message, info: DeliveryInfo) -> None:
        if not self._marks.is_compared:
            return  # It came after a gap.
        try:
            self._on_message(message, info)
        except Exception as error:
            # Going on after a message that was lost here would break the order: read it again.
            report = {"message": f"cannot process {message.subject} ({message.reply})", "exception": error}
            asyncio.get_running_loop().call_exception_handler(report)
            self._on_gap("a message could not be processed")
            return
        # A message that was not acked for long comes again, after newer ones.
        if info.position > self.received:
            self.received, self._marks.newest = info.position, info
            self.unread = info.pending

    def _on_gap(self, reason: str) -> None:
        if self._js.is_disturbed:
            log.debug("reader.gap", extra={"consumer": self._consumer, "why": reason})
        else:
            self._js.gathered_log(log, logging.INFO, "reader.gap", reason, consumer=self._consumer)
        self._doubt()
        self._gapped.set()

    def _doubt(self) -> None:
        self._marks.doubt(self._known_mark())
