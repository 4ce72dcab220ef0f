"""Reads the newest message of each subject of a stream, all at once, if the stream allows no direct get.

Asking the leader for each message takes ten times as long. The consumer is in the memory of one server and is
gone ten seconds after its last request. That server may lag, so this is only for showing data to people;
nothing may depend on it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count

import msgspec

from actors.errors import Unavailable
from streams.bounded_gather import Turns
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from streams.nats.wire_names import STATUS
from streams.reading.reply_subject import delivery_info

BATCH_MESSAGES = 512
BATCH_BYTES = 4 << 20
"""Bytes of one request: nats-server disconnects a client that leaves much more than that unread."""
BATCH_TIMEOUT_S = 5.0
CHANGED_WAIT_S = 1.0
"""Wait for a message that replaces one during a read: the server removes the older one first, and hands out
neither for a moment."""
CONSUMER_GONE_AFTER_S = 10.0
REPEATED_MAX = 1000
"""Limit of a read: messages that are written meanwhile come again, and must not keep the reader busy
forever."""
NOTHING_MORE = ("404", "408")


async def newest(js: JetStream, stream: str, subjects: Sequence[str]) -> AsyncIterator[StoredMessage]:
    """Each subject's newest message; one that changes meanwhile may come again, the newer last.

    Raises `Unavailable`, and `ApiError` if there is no such stream.
    """
    name = js.wire.new_inbox().rpartition(".")[2]
    config = {
        "name": name,
        "durable_name": name,
        "deliver_policy": "last_per_subject",
        "ack_policy": "none",
        "filter_subjects": list(subjects),
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": int(CONSUMER_GONE_AFTER_S * 1e9),
    }
    expected = (await js.consumer_create(stream, config)).pending
    if not expected:
        return
    found, left, turns = set[str](), 2 * expected + REPEATED_MAX, Turns()
    async with _asking(js, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}") as pages:
        async for message in pages:
            await turns.pause()  # Many may have come at once.
            info = delivery_info(message.reply)
            headers = message.headers or {}
            yield StoredMessage(message.subject, info.position, info.stored_at, headers, message.data)
            found.add(message.subject)
            left -= 1
            if not left or (not info.pending and len(found) >= expected):
                return


@asynccontextmanager
async def _asking(js: JetStream, subject: str) -> AsyncIterator[AsyncIterator[Message]]:
    """The messages that the consumer hands out, request after request."""
    inbox, came = js.wire.new_inbox(), asyncio.Queue[Message]()
    subscription = await js.wire.subscribe(f"{inbox}.*", came.put_nowait)
    limits = {"batch": BATCH_MESSAGES, "max_bytes": BATCH_BYTES, "expires": int(CHANGED_WAIT_S * 1e9)}
    request = msgspec.json.encode(limits)

    async def messages() -> AsyncIterator[Message]:
        for number in count(1):
            await js.wire.publish(subject, request, answers := f"{inbox}.{number}")
            left = BATCH_MESSAGES
            while left:
                message = await _next(came)
                if message.reply:
                    left -= 1
                    yield message
                elif message.subject == answers:  # Otherwise it is a late answer to an earlier request.
                    if (message.headers or {}).get(STATUS) in NOTHING_MORE:
                        return
                    left = 0

    try:
        yield messages()
    finally:
        await subscription.unsubscribe()


async def _next(came: asyncio.Queue[Message]) -> Message:
    try:
        async with asyncio.timeout(BATCH_TIMEOUT_S):
            return await came.get()
    except TimeoutError:
        raise Unavailable("nats-server hands out nothing more") from None
