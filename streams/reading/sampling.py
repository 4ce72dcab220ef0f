"""Samples a stream that may have gaps: each sampled message stands for a known number of messages.

The range of positions is cut in two, then alternately the part with the most messages and the one with the
most bytes, until there are enough parts. A part is represented by its first message. If that is large by
chance, the part seems to have the most bytes, and is cut until the message stands for itself alone.
nats-server says how many messages follow a message, so two requests give the number in a part. Random
positions would not do: most may be in gaps, and a message after a gap would be found too often.
"""

from itertools import cycle
from operator import attrgetter

from msgspec import Struct

from actors.ids import stable_hash
from streams.nats.answers import StoredMessage, StreamInfo
from streams.nats.jetstream import ALL_SUBJECTS, JetStream
from streams.nats.wire_names import UNREAD

HEADER_BYTES = 4
"""Bytes of a header in addition to its name and value: `: ` and the end of the line."""
RECORD_BYTES = 46
"""Bytes that a message takes in a file of nats-server in addition to subject, headers and body: 30, and 16 if
it has headers, which every event has."""


class StreamPart(Struct, frozen=True):
    """The `count` messages from `low` to below `high`, of which `message` is the first one.

    `after`: number of messages from `high` on.
    """

    low: int
    high: int
    message: StoredMessage
    count: int
    after: int

    @property
    def size(self) -> int:
        """The bytes that the part would have if all its messages were like the first one."""
        return self.count * stored_size(self.message)


def stored_size(message: StoredMessage) -> int:
    """The bytes that a message takes in a file of nats-server."""
    if unread := message.headers.get(UNREAD):
        headers = int(unread)
    else:
        headers = sum(len(name) + len(value) + HEADER_BYTES for name, value in message.headers.items())
    return len(message.data) + headers + len(message.subject) + RECORD_BYTES


async def sample_stream(
    js: JetStream, stream: StreamInfo, parts_max: int, subject: str = ALL_SUBJECTS, start: int = 1
) -> list[StreamPart]:
    """Divide the messages of `subject` (wildcards allowed) from `start` on into parts, in stream order.

    Raises `Unavailable`.

    Two nodes that look at about the same time cut at the same positions, though the stream may have grown.
    """
    found = await _first(js, stream.name, subject, start)
    if found is None:
        return []
    message, count = found
    parts = [StreamPart(start, 1 << stream.last.bit_length(), message, count, 0)]
    single = list[StreamPart]()
    by_size = cycle((False, True))
    while parts and len(parts) + len(single) < parts_max:
        largest = max(parts, key=attrgetter("size" if next(by_size) else "count"))
        parts.remove(largest)
        for part in await _cut(js, stream, subject, largest):
            is_divisible = part.count > 1 and part.high - part.low > 1
            (parts if is_divisible else single).append(part)
    return sorted([*single, *parts], key=lambda each: each.low)


async def _cut(js: JetStream, stream: StreamInfo, subject: str, part: StreamPart) -> list[StreamPart]:
    """Cut a part in two; returns one smaller part if all its messages are on one side."""
    cut = _cut_position(stream.created, part.low, part.high)
    if part.message.position >= cut:
        return [StreamPart(cut, part.high, part.message, part.count, part.after)]
    found = await _first(js, stream.name, subject, cut)
    if found is None or found[0].position >= part.high:
        return [StreamPart(part.low, cut, part.message, part.count, part.after)]
    message, from_cut = found
    upper = min(max(from_cut - part.after, 1), part.count - 1)
    return [
        StreamPart(part.low, cut, part.message, part.count - upper, part.after + upper),
        StreamPart(cut, part.high, message, upper, part.after),
    ]


def _cut_position(created: str, low: int, high: int) -> int:
    """A position near the middle, the same for all nodes, which no producer can compute.

    A producer that knew it could put a tiny message there, or wait until another tenant has one there: then
    the other one would seem to have the most, and lose its events. No producer is told when the stream was
    created, to the nanosecond.

    It is not the middle itself: of events that alternate between two tenants, multiples of powers of two
    would show one tenant only.
    """
    width = high - low
    return low + max(width // 4 + int(stable_hash(f"{created} {low} {high}"), 16) % max(width // 2, 1), 1)


async def _first(js: JetStream, stream: str, subject: str, position: int) -> tuple[StoredMessage, int] | None:
    """The first message from the position on, and the number of messages from it on; None without any."""
    page = await js.read(stream, subject, position, batch=1)
    return (page.messages[0], page.pending + 1) if page.messages else None
