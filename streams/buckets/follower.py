"""Follows a subject of a stream: every message is passed on once, in order, and nothing fails silently.

It replaces a watch, whose consumer may disappear unnoticed when a server restarts. A core subscription on the
subject is only a hint that wakes the follower. The messages themselves are read from the stream, from the
last position on: after a hint, after a reconnect, and at a fixed interval even without a hint. If the stream
was recreated before a reconnect, or lost its tail, everything in it is passed on again.
"""

import asyncio
import logging
from collections.abc import Callable

from actors.errors import Unavailable
from streams.lost_tails.marks import Mark
from streams.lost_tails.read_positions import BucketPosition
from streams.nats.answers import StoredMessage
from streams.nats.errors import ApiError
from streams.nats.jetstream import ALL_SUBJECTS, JetStream
from streams.nats.retry import Pauses
from streams.nats.wire import Message, Subscription
from streams.nats.wire_names import KV_OPERATION, MARKER_REASON
from streams.tasks import cancel_and_wait, reporting

log = logging.getLogger(__name__)

READS_AFTER_A_HINT_S = (0.0, 0.002, 0.01, 0.05, 0.2)
"""Times of the reads after a hint, which may be faster than the stream, and than the replica that is read."""

READ_MESSAGES_MAX = 2048
"""Messages of one read. For each read the server counts those that remain, however few it returns."""

MESSAGES_IN_A_ROW = 64
BYTES_IN_A_ROW = 64 << 10
"""Bytes that are passed on before other work has a turn: about two milliseconds of work."""

READ_PAUSE_S = 0.05
"""Pause after each change that was read. If a key changes all the time, the stream keeps only its last
values, so most changes need not be read at all."""


class Follower:
    """A follower of `subject` (may be a wildcard; the stream must not transform it) from the stream's start.

    The handler must not raise, since a message would be lost: an exception ends the follower, with a log
    line. `begins_again` is called before the stream is passed on from its start once more, and `is_complete`
    when all of it has been: other messages are no longer in the stream. `asks_leader`: a replica's end does
    not count as the end if the leader has more, and each read asks whether it is still the same stream.
    `whole_stream`: `subject` is that of all messages, so the server need not compare it with each key. With a
    million keys that takes it a tenth of a second for each read.
    """

    def __init__(
        self,
        js: JetStream,
        stream: str,
        subject: str,
        handler: Callable[[StoredMessage], None],
        *,
        every_s: float = 1.0,
        begins_again: Callable[[], None] = lambda: None,
        is_complete: Callable[[], None] = lambda: None,
        asks_leader: bool = False,
        whole_stream: bool = False,
    ) -> None:
        self.read_at = float("-inf")  # By the loop's clock: everything stored by then has been passed on.
        self._js = js
        self._stream = stream
        self._subject = subject
        self._read_subject = ALL_SUBJECTS if whole_stream else subject
        self._handler = handler
        self._every_s = every_s
        self._begins_again = begins_again
        self._is_complete = is_complete
        self._asks_leader = asks_leader
        self._is_starting_over = False
        self._place = BucketPosition(js, stream)
        self._woken = asyncio.Event()
        self._reading = asyncio.Lock()
        self._subscription: Subscription | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def applied(self) -> int:
        """The position up to which everything has been passed on."""
        return self._place.position

    async def start(self) -> None:
        """Return when all existing messages have been passed on; retry while they cannot be read."""
        self._subscription = await self._js.wire.subscribe(self._subject, self._on_hint, headers=False)
        self._js.add_listener(self._on_change)
        while not await self._read():  # noqa: ASYNC110  # A retry, with nothing to wait for.
            await asyncio.sleep(self._every_s)
        self._task = asyncio.ensure_future(self._follow())
        self._task.add_done_callback(reporting("a follower's handler failed"))

    async def stop(self) -> None:
        """Pass on nothing more. A second call does nothing."""
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        self._js.remove_listener(self._on_change)
        await subscription.unsubscribe()
        await cancel_and_wait(self._task)

    async def start_over(self) -> None:
        """Pass on everything in the stream, which is another stream of the same name now."""
        async with self._reading:
            self._place.start_over()
            self._begin_again()
        self._woken.set()

    async def doubt(self) -> None:
        """Compare the stream with the messages read from it, and continue reading."""
        self._place.doubt()
        await self._read()

    async def catch_up(self) -> None:
        """Return when every message that the leader has now has been passed on, even without a hint.

        Raises `Unavailable`, and `ApiError` if there is no such stream.
        """
        pauses = Pauses()
        # The last message of a moment ago may be deleted before a replica shows it, so ask again each time.
        while (last := await self._js.last_message(self._stream, self._read_subject)) is not None:
            if last.position < self.applied:
                self._place.doubt()
            if last.position > self.applied or self._place.is_doubtful:
                await self._read()
            if last.position <= self.applied and not self._place.is_doubtful:
                return
            await pauses.wait()

    async def _follow(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._woken.wait()
            except TimeoutError:
                await self._read()
            else:
                await self._read_after_a_hint()

    async def _read_after_a_hint(self) -> None:
        self._woken.clear()
        before = self.applied
        for delay_s in READS_AFTER_A_HINT_S:
            await asyncio.sleep(delay_s)
            await self._read()
            if self.applied > before:
                await asyncio.sleep(READ_PAUSE_S)
                return

    async def _read(self) -> bool:
        """Pass on the new messages; returns False if they could not be read."""
        async with self._reading:
            asked_at = asyncio.get_running_loop().time()
            if self._asks_leader and not await self._has_checked_created():
                return False
            while True:
                try:
                    if not await self._place.compare():
                        log.warning("bucket.read_again", extra={"stream": self._stream})
                        self._begin_again()
                    page = await self._js.read(
                        self._stream, self._read_subject, self.applied + 1, READ_MESSAGES_MAX
                    )
                    if self._place.is_doubtful:
                        continue  # These messages may be from another stream.
                    await self._hand_on(page.messages)
                    if page.pending or not await self._is_at_the_end(page.messages):
                        continue
                except (Unavailable, ApiError) as error:
                    log.debug("following %s of %s: %s", self._subject, self._stream, error)
                    return False
                if self._is_starting_over:
                    self._is_starting_over = False
                    self._is_complete()
                self.read_at = asked_at
                return True

    async def _has_checked_created(self) -> bool:
        """Check whether the stream was recreated; returns False if the leader does not say."""
        try:
            await self._place.check_created()
        except (Unavailable, ApiError) as error:
            log.debug("following %s of %s: %s", self._subject, self._stream, error)
            return False
        return True

    async def _is_at_the_end(self, messages: list[StoredMessage]) -> bool:
        """True if the leader has no more. Raises `Unavailable` if the replica that was read lags."""
        if not (self._asks_leader or self._is_starting_over):
            return True
        last = await self._js.last_message(self._stream, self._read_subject)
        if last is None or last.position <= self.applied:
            return True
        if not messages:
            raise Unavailable(f"a replica lags: it ends at {self.applied}, the leader at {last.position}")
        return False

    def _begin_again(self) -> None:
        self._is_starting_over = True
        self._begins_again()

    async def _hand_on(self, messages: list[StoredMessage]) -> None:
        count = size = 0
        for message in messages:
            self._handler(message)
            self._place.move(Mark(position=message.position, stored_at=message.stored_at))
            count, size = count + 1, size + len(message.data)
            if count >= MESSAGES_IN_A_ROW or size >= BYTES_IN_A_ROW:
                count = size = 0
                await asyncio.sleep(0)

    def _on_hint(self, _: Message) -> None:
        self._woken.set()

    def _on_change(self, connected: bool) -> None:
        if connected:
            self._woken.set()


def is_removal(message: StoredMessage) -> bool:
    """True for a deletion or purge of the key, or the marker that the server leaves for an expired value."""
    return message.headers.get(KV_OPERATION) in ("DEL", "PURGE") or MARKER_REASON in message.headers
