"""The pull loop of one consumer, from its first request to the first doubt about it.

A loop of our own handles three times as many messages as nats-py's `fetch`, since it is a plain subscription
that is refilled at half its batch, or at half of its bytes: a request has a limit in bytes, too
(`streams.reading.pull_room`). The server says what is left of a request when it ends, unless its limit is
used up exactly; so bytes are counted as the server counts them. If the next message does not fit into what
is left of a request, it is waited for until it comes with another one, or until all have ended: two that each
have a part of the limit could otherwise end one after the other forever, for a message larger than either.
Then a whole limit is requested; if that has no room for the message, it is requested alone, without a limit.

Only its owner knows the consumer, and the server numbers its messages from 1 on. Everything that could have
broken this sequence is a *gap*: a number that is not the next, a heartbeat that knows a higher one, no
heartbeat, a consumer that is gone, a lost connection. Then the puller stays quiet, and its owner makes a new
consumer (`streams.reading.reader`). Each consumer has its own inbox, so late messages of an older one are not
taken for messages of this one.

A consumer acks everything up to a position with one ack: that of its highest message there. It is repeated
with each heartbeat: if the last one were lost, the consumer could stay full forever.
"""

import asyncio
import math
from collections.abc import Callable

import msgspec

from actors.aligned_timers import next_tick
from streams.nats.answers import Put
from streams.nats.errors import Disconnected
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message, Subscription
from streams.nats.wire_names import DESCRIPTION, LAST_CONSUMER, PENDING_BYTES, PENDING_MESSAGES, STATUS
from streams.reading.pull_room import PullRoom
from streams.reading.reply_subject import ACK, DeliveryInfo, delivery_info

REQUEST_EXPIRES_S = 30.0
"""Lifetime of a request. A request that was lost is missed with the next heartbeats."""

IDLE_HEARTBEAT_S = 1.5
"""Interval of heartbeats: each of 128 consumers wakes an idle node with them."""
SILENT_HEARTBEATS_MAX = 2

LARGE_EXPIRES_S = 3.0
"""Lifetime of a request for one large message, which is there: others may wait to send one."""

RETRY_PAUSE_MIN_S = 0.05
RETRY_PAUSE_MAX_S = 1.0
"""Pause after a refused request; not longer than the heartbeat."""

LIMIT_MIN_PART = 4
"""A request has at least this part of a whole limit, though small messages have used up little of the others:
the next ones may be larger. So all requests under way have at most two whole limits."""

BATCH_COMPLETED = "Batch Completed"
"""Said after the last message of a request, if there are bytes left of its limit."""
LIMIT_REACHED = "Message Size Exceeds MaxBytes"
"""Said when a request ends since the next message is larger than the rest of its limit."""


class Puller:
    """Pulls from one consumer from start to stop.

    - `on_message`: called with each message and the content of its reply subject.
    - `on_gap`: called at most once, with the reason why nothing more will come.
    - `room`: that of the connection.
    - `more`: how many messages, in addition to `batch`, may be requested now.
    """

    def __init__(
        self,
        js: JetStream,
        stream: str,
        consumer: str,
        *,
        room: PullRoom,
        batch: int = 1000,
        on_message: Callable[[Message, DeliveryInfo], None],
        on_gap: Callable[[str], None],
        more: Callable[[], int] = lambda: 0,
    ) -> None:
        self._js = js
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._room = room
        self._batch = self._count_max = batch
        self._more = more
        self._on_message = on_message
        self._on_gap = on_gap
        self._last = 0
        self._unacked: list[tuple[int, str]] = []
        self._acked = 0, ""
        self._asked = 0
        self._bytes_left = 0.0
        self._limit = 0
        self._nothing_came = False
        self._next_did_not_fit = False
        self._next_is_large = False
        self._idle = asyncio.Event()
        self._wanted = asyncio.Event()
        self._will_ask = False
        self._pulling_paused = False
        self._retry_s = 0.0
        self._heard = False
        self._silent = 0
        self._running = False
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._asking: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Open an inbox and send the first request. Call this once."""
        self._loop = asyncio.get_running_loop()
        self._running = True
        self._inbox = self._js.wire.new_inbox()
        self._subscription = await self._js.wire.subscribe(self._inbox, self._on_answer)
        self._js.add_listener(self._on_change)
        self._room.enter()
        self._want()
        self._asking = asyncio.ensure_future(self._ask())
        self._check_later()

    async def stop(self) -> None:
        """Request nothing more, and drop the inbox. A second call does nothing."""
        self._fall_quiet()
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        self._js.remove_listener(self._on_change)
        await subscription.unsubscribe()

    def set_pulling_paused(self, paused: bool) -> None:
        """Stop sending requests, or send them again. Messages already requested still come."""
        self._pulling_paused = paused
        self._want()

    def ack(self, position: int) -> None:
        """Ack all messages up to the position."""
        before, unacked = self._acked, self._unacked
        count = 0
        for each, _ in unacked:
            if each > position:
                break
            count += 1
        if count:
            self._acked = max(before, *unacked[:count])
            del unacked[:count]
        if self._acked != before:
            self.repeat_ack()

    def repeat_ack(self) -> None:
        """Send the last ack, again: it may have been lost."""
        _, reply = self._acked
        if reply and self._js.wire.is_connected:
            self._js.wire.send((Put(reply, ACK),), ("",))

    def _want(self) -> None:
        """Wake `_ask` if less than half of the messages, or of the bytes, is requested."""
        if self._bytes_left <= 0 or (self._asked <= 0 and self._bytes_left == math.inf):
            self._asked, self._bytes_left = 0, 0.0
            self._idle.set()
        if self._next_did_not_fit and self._asked > 0:
            return
        if self._is_half and not self._pulling_paused:
            self._will_ask = True
            self._wanted.set()

    @property
    def _is_half(self) -> bool:
        """True if half of what may be requested is used up."""
        return self._asked * 2 <= self._count_max or self._bytes_left * 2 <= self._limit

    async def _ask(self) -> None:
        """Send a request whenever one is wanted."""
        while True:
            await self._wanted.wait()
            if self._retry_s:
                await asyncio.sleep(self._retry_s)
            self._wanted.clear()
            self._will_ask = False
            try:
                if self._next_is_large:
                    async with self._room.large:
                        await self._request(1, math.inf, LARGE_EXPIRES_S)
                        await self._idle.wait()
                else:
                    self._limit, self._count_max = self._room.share, self._batch + self._more()
                    if not self._is_half:
                        continue  # Fewer may be requested than when it was wanted.
                    rest = self._limit - (self._bytes_left if self._asked else 0)
                    bytes_max = max(rest, self._limit // LIMIT_MIN_PART)
                    await self._request(max(1, self._count_max - self._asked), bytes_max, REQUEST_EXPIRES_S)
            except Disconnected:
                return  # The wire was closed; nothing can be requested.

    async def _request(self, count: int, bytes_max: float, expires_s: float) -> None:
        request = {
            "batch": count,
            "expires": int(expires_s * 1e9),
            "idle_heartbeat": int(IDLE_HEARTBEAT_S * 1e9),
        }
        if bytes_max < math.inf:
            request["max_bytes"] = int(bytes_max)
        self._nothing_came = not self._asked
        self._next_did_not_fit = self._next_is_large = False
        self._asked += count
        self._bytes_left += bytes_max
        self._idle.clear()
        await self._js.wire.publish(self._subject, msgspec.json.encode(request), self._inbox)

    def _on_answer(self, message: Message) -> None:
        if not self._running:
            return
        self._heard = True
        if not message.reply:
            self._on_status(message.headers or {})
            return
        info = delivery_info(message.reply)
        if info.number != self._last + 1:
            self._gap(f"consumer sequence {info.number} after {self._last}")
            return
        self._last = info.number
        self._retry_s = 0.0
        self._asked -= 1
        self._bytes_left -= message.size
        self._nothing_came = self._next_did_not_fit = False
        half = self._asked * 2 <= self._count_max or self._bytes_left * 2 <= self._limit
        if (half and not self._will_ask) or self._asked <= 0 or self._bytes_left <= 0:
            self._want()
        self._unacked.append((info.position, message.reply))
        self._on_message(message, info)

    def _on_status(self, headers: dict[str, str]) -> None:
        if gap := gap_in_status(headers, self._last):
            self._gap(gap)
            return
        match headers.get(STATUS, ""):
            case "100":
                self._retry_s = 0.0
                self.repeat_ack()
            case "404" | "408":
                self._ended(headers)
            case "409" if headers.get(DESCRIPTION) == BATCH_COMPLETED:
                self._ended(headers)
            case "409" if headers.get(DESCRIPTION) == LIMIT_REACHED:
                self._next_did_not_fit = True
                self._ended(headers)
                self._next_is_large = self._nothing_came and not self._asked
            case _:
                self._retry_s = min(max(self._retry_s * 2, RETRY_PAUSE_MIN_S), RETRY_PAUSE_MAX_S)
                self._ended(headers)

    def _ended(self, headers: dict[str, str]) -> None:
        """Count a request that ended; it was filled completely unless the server says what is left of it."""
        self._asked -= int(headers.get(PENDING_MESSAGES, self._asked))
        self._bytes_left -= float(headers.get(PENDING_BYTES, self._bytes_left))
        self._want()

    def _check_heartbeat(self) -> None:
        # Without requests, no heartbeats come.
        self._silent = 0 if self._heard or not self._asked else self._silent + 1
        self._heard = False
        if self._silent >= SILENT_HEARTBEATS_MAX:
            self._gap(f"no heartbeat for {self._silent * IDLE_HEARTBEAT_S:g} s")
        else:
            self._check_later()

    def _check_later(self) -> None:
        self._watch = self._loop.call_at(
            next_tick(self._loop.time(), IDLE_HEARTBEAT_S), self._check_heartbeat
        )

    def _on_change(self, connected: bool) -> None:
        self._gap("a new connection" if connected else "the connection was lost")

    def _gap(self, reason: str) -> None:
        if self._running:
            self._fall_quiet()
            self._on_gap(reason)

    def _fall_quiet(self) -> None:
        if self._running:
            self._room.leave()
        self._running = False
        if self._asking is not None:
            self._asking.cancel()
        if self._watch is not None:
            self._watch.cancel()


def gap_in_status(headers: dict[str, str], last: int) -> str:
    """The gap after message `last` that a status of the server reports, in words; empty if there is none."""
    status, text = headers.get(STATUS, ""), headers.get(DESCRIPTION, "")
    match status:
        case "100":
            handed_out = int(headers.get(LAST_CONSUMER, "0"))
            return f"the server has handed out {handed_out}, we have {last}" if handed_out > last else ""
        case "404" | "408":
            return ""
        case "409" if text != "Consumer Deleted":
            return ""
        case _:
            return f"{status} {text}".rstrip()
