"""The pull loop of one durable consumer, in a priority group whose messages go to one pinned client.

Why our own: a plain subscription that is refilled at half its batch takes three times what nats-py's
`fetch` does, and nats-py 2.16 knows no priority groups (ADR-42).

Order is never taken from redelivery. The server numbers what it hands out, and the numbers restart at 1
with a RESET; whatever could have broken the run of them is a *gap*: a number that is not the next, a
heartbeat that knows of a higher one, another pin (behind which a foreign RESET hides, with numbers that
look contiguous), a pin that was taken away, silence, a lost connection. Then the puller is quiet for good,
and its owner, if it still is the owner, does this:

    stop() the old puller, so that nothing is asked for on the old inbox;
    `rewind`: UNPIN, so that an earlier client loses the pin, then RESET to where it must go on;
    start() a new puller.

Every message in the new inbox was handed out after the RESET, since no request named it before. If another
client else got the pin in between, the first heartbeat or message tells (another number than ours), and the
same again drives him out: a puller of ours that lost its pin does not ask again. Why in this order:
`docs/decisions/reset-before-pull.md`.
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
"""Life of a request; shorter than the pin's time-out, which counts from the last request."""

IDLE_HEARTBEAT_S = 1.5
"""Half of `REQUEST_EXPIRES_S`, the most that the server takes: as often each of 128 consumers wakes an idle
node."""
SILENT_HEARTBEATS_MAX = 2

RETRY_PAUSE_MIN_S = 0.05
RETRY_PAUSE_MAX_S = 1.0
"""Pause while there is no answer; not above the heartbeat, since the answers 503 are signs of life too."""


async def rewind(js: JetStream, stream: str, consumer: str, group: str, sequence: int | None) -> int:
    """Take the pin away and have everything from `sequence` on (None: the ack floor) handed out again.

    Returns where it starts. Raises `Unavailable` (do it again) and `ApiError`.

    The question before it makes the server (2.15.1) forget requests whose inbox is gone. The UNPIN would
    give the pin to such a request, and no client would be served until the pin's time is out.
    """
    await js.consumer_info(stream, consumer)
    await js.consumer_unpin(stream, consumer, group)
    return await js.consumer_reset(stream, consumer, sequence)


class Puller:
    """Pulls from one consumer from start to stop; `on_message` for each message, `on_gap` at most once."""

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
        """A new inbox and the first request. To be called once, after the consumer's RESET."""
        self._loop = asyncio.get_running_loop()
        self._running = True
        self._inbox = self._js.wire.new_inbox()
        self._subscription = await self._js.wire.subscribe(self._inbox, self._on_answer)
        self._js.add_listener(self._on_change)
        self._want()
        self._asking = asyncio.ensure_future(self._ask())
        self._look_later()

    async def stop(self) -> None:
        """Ask for nothing more and drop the inbox. Does nothing the second time."""
        self._fall_quiet()
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        self._js.remove_listener(self._on_change)
        await subscription.unsubscribe()

    def hold(self, held: bool) -> None:
        """Send no further request, or go on. What was asked for already still comes."""
        self._held = held
        self._want()

    def _want(self) -> None:
        """Wake the asking where less than half a batch is asked for."""
        if self._asked * 2 <= self._batch and not self._held:
            self._wanted.set()

    async def _ask(self) -> None:
        """Send a request whenever less than half a batch is asked for."""
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
                return  # We closed the wire; there is nothing left to ask.

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
        if pin and pin != self._pin:  # A block of headers that is no block at all swallows it.
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
        """Count a request that ended; without a word on how many it did not hand out, all of it did."""
        self._asked = max(0, self._asked - int(headers.get(PENDING_MESSAGES, self._asked)))
        self._want()

    def _back_off(self) -> None:
        self._retry_s = min(max(self._retry_s * 2, RETRY_PAUSE_MIN_S), RETRY_PAUSE_MAX_S)

    def _look(self) -> None:
        # Who asks for nothing hears nothing.
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
