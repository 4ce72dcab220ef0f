"""The pull loop of one durable consumer, in a priority group whose messages go to one pinned client.

A loop of our own handles three times as many messages as nats-py's `fetch`, since it is a plain subscription
that is refilled at half its batch; and nats-py 2.16 does not support priority groups (ADR-42).

Order never relies on redelivery. The server numbers the messages that it hands out, and the numbers restart
at 1 with a RESET. Everything that could have broken this sequence is a *gap*: a number that is not the next,
a heartbeat that knows a higher one, another pin (a foreign RESET may hide behind it, with numbers that look
contiguous), a pin that was taken away, silence, a lost connection. Then the puller stays quiet for good, and
its owner, if it still is the owner, does this:

    stop() the old puller, so that nothing is requested for the old inbox;
    `rewind`: UNPIN, so that an earlier client loses the pin, then RESET to the position where it must go on;
    start() a new puller.

Every message in the new inbox was handed out after the RESET, since no earlier request named that inbox. If
another client got the pin in between, the first heartbeat or message shows it (by another number than ours),
and the same procedure drives that client out: a puller of ours that lost its pin does not ask again. The
reason for this order: `docs/decisions/reset-before-pull.md`.
"""

import asyncio
from collections.abc import Callable

import msgspec

from actors.runtime.coalescing import next_beat
from streams.nats.errors import Disconnected
from streams.nats.headers import DESCRIPTION, LAST_CONSUMER, PENDING_MESSAGES, PIN_ID, STATUS
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message, Subscription
from streams.reading.delivered import consumer_sequence

REQUEST_EXPIRES_S = 3.0
"""Lifetime of a request; shorter than the pin's timeout, which counts from the last request."""

IDLE_HEARTBEAT_S = 1.5
"""Interval of heartbeats: half of `REQUEST_EXPIRES_S`, the longest that the server accepts, since each of 128
consumers wakes an idle node with them."""
SILENT_HEARTBEATS_MAX = 2

RETRY_PAUSE_MIN_S = 0.05
RETRY_PAUSE_MAX_S = 1.0
"""Pause while there is no answer; not longer than the heartbeat, since 503 answers are signs of life, too."""


async def rewind(js: JetStream, stream: str, consumer: str, group: str, sequence: int | None) -> int:
    """Take the pin away, and let the server hand out everything from `sequence` on (None: the ack floor).

    Returns the position where it starts. Raises `Unavailable` (do it again) and `ApiError`.

    The request before it makes the server (2.15.1) forget requests whose inbox is gone. Otherwise the UNPIN
    would give the pin to such a request, and no client would be served until the pin times out.
    """
    await js.consumer_info(stream, consumer)
    await js.consumer_unpin(stream, consumer, group)
    return await js.consumer_reset(stream, consumer, sequence)


class Puller:
    """Pulls from one consumer from start to stop; calls `on_message` for each, `on_gap` at most once."""

    def __init__(
        self,
        js: JetStream,
        stream: str,
        consumer: str,
        *,
        group: str,
        batch: int = 1000,
        on_message: Callable[[Message], None],
        on_gap: Callable[[str], None],
    ) -> None:
        self._js = js
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._group = group
        self._batch = batch
        self._on_message = on_message
        self._on_gap = on_gap
        self._last = 0
        self._pin = ""
        self._asked = 0
        self._wanted = asyncio.Event()
        self._held = False
        self._retry_s = 0.0
        self._heard = False
        self._silent = 0
        self._running = False
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._asking: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Open a new inbox and send the first request. Call this once, after the consumer's RESET."""
        self._loop = asyncio.get_running_loop()
        self._running = True
        self._inbox = self._js.wire.new_inbox()
        self._subscription = await self._js.wire.subscribe(self._inbox, self._on_answer)
        self._js.add_listener(self._on_change)
        self._want()
        self._asking = asyncio.ensure_future(self._ask())
        self._look_later()

    async def stop(self) -> None:
        """Request nothing more, and drop the inbox. A second call does nothing."""
        self._fall_quiet()
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        self._js.remove_listener(self._on_change)
        await subscription.unsubscribe()

    def hold(self, held: bool) -> None:
        """Send no further request, or go on. Messages that were requested before still come."""
        self._held = held
        self._want()

    def _want(self) -> None:
        """Wake `_ask` if less than half a batch is requested."""
        if self._asked * 2 <= self._batch and not self._held:
            self._wanted.set()

    async def _ask(self) -> None:
        """Send a request whenever less than half a batch is requested."""
        while True:
            await self._wanted.wait()
            if self._retry_s:
                await asyncio.sleep(self._retry_s)
            self._wanted.clear()
            request = {
                "batch": self._batch - self._asked,
                "expires": int(REQUEST_EXPIRES_S * 1e9),
                "idle_heartbeat": int(IDLE_HEARTBEAT_S * 1e9),
                "group": self._group,
            }
            if self._pin:
                request["id"] = self._pin
            self._asked = self._batch
            try:
                await self._js.wire.publish(self._subject, msgspec.json.encode(request), self._inbox)
            except Disconnected:
                return  # The wire was closed; nothing can be requested.

    def _on_answer(self, message: Message) -> None:
        if not self._running:
            return
        self._heard = True
        if not message.reply:
            self._on_status(message.headers or {})
            return
        number = consumer_sequence(message.reply)
        if number != self._last + 1:
            self._gap(f"consumer sequence {number} after {self._last}")
            return
        pin = message.headers.get(PIN_ID, "") if message.headers else ""
        if pin and pin != self._pin:  # A message whose block of headers is broken shows no pin.
            if self._pin:
                self._gap("the pin changed")
                return
            self._pin = pin
        self._last = number
        self._retry_s = 0.0
        self._asked -= 1
        if self._asked * 2 <= self._batch:
            self._want()
        self._on_message(message)

    def _on_status(self, headers: dict[str, str]) -> None:
        status, text = headers.get(STATUS, ""), headers.get(DESCRIPTION, "")
        match status:
            case "100":
                delivered = int(headers.get(LAST_CONSUMER, "0"))
                if delivered > self._last:
                    self._gap(f"the server has handed out {delivered}, we have {self._last}")
                self._retry_s = 0.0
            case "404" | "408":
                self._ended(headers)
            case "409" if text != "Consumer Deleted":
                self._back_off()
                self._ended(headers)
            case "503":
                self._back_off()
                self._ended({})
            case _:
                self._gap(f"{status} {text}".rstrip())

    def _ended(self, headers: dict[str, str]) -> None:
        """Count a request that ended; it was filled completely unless the server says what is missing."""
        self._asked = max(0, self._asked - int(headers.get(PENDING_MESSAGES, self._asked)))
        self._want()

    def _back_off(self) -> None:
        self._retry_s = min(max(self._retry_s * 2, RETRY_PAUSE_MIN_S), RETRY_PAUSE_MAX_S)

    def _look(self) -> None:
        # Without requests, no heartbeats come.
        self._silent = 0 if self._heard or self._held else self._silent + 1
        self._heard = False
        if self._silent >= SILENT_HEARTBEATS_MAX:
            self._gap(f"no heartbeat for {self._silent * IDLE_HEARTBEAT_S:g} s")
        else:
            self._look_later()

    def _look_later(self) -> None:
        self._watch = self._loop.call_at(next_beat(self._loop.time(), IDLE_HEARTBEAT_S), self._look)

    def _on_change(self, connected: bool) -> None:
        self._gap("a new connection" if connected else "the connection was lost")

    def _gap(self, reason: str) -> None:
        if self._running:
            self._fall_quiet()
            self._on_gap(reason)

    def _fall_quiet(self) -> None:
        self._running = False
        if self._asking is not None:
            self._asking.cancel()
        if self._watch is not None:
            self._watch.cancel()
