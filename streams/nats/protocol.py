"""Decodes JetStream's answers into our own types (`streams.nats.answers`).

Only the members that Angarium uses are decoded; newer ones are ignored. The formats are those of the NATS
documentation (JetStream wire API reference), of ADR-31 (direct get) and of ADR-42 (priority groups).
"""

import math
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, field

from streams.nats.answers import (
    Answer,
    ConsumerInfo,
    Page,
    Refused,
    Stored,
    StoredMessage,
    StreamInfo,
    Unanswered,
)
from streams.nats.wire import Message
from streams.nats.wire_names import (
    DESCRIPTION,
    DIRECT_GET,
    LAST_SEQUENCE,
    NUM_PENDING,
    SEQUENCE,
    STATUS,
    STREAM,
    SUBJECT,
    TIME_STAMP,
    UNREAD,
    UP_TO_SEQUENCE,
)

_WHOLE = len("2006-01-02T15:04:05")
_NO_STATUS = "NATS/1.0"
"""The first line of most blocks of headers."""
_BEFORE_STATUS = "NATS/1.0 "

BLOCK_BYTES_MAX = 16 << 10
"""Bytes of a block of headers that is parsed. Everything that Angarium stores has fewer."""
LINES_MAX = 64
"""Lines of such a block, without the first one. 64 kB have room for 13,000, which take 6 ms to parse."""
_SPLITS_MAX = LINES_MAX + 2
"""Ends of lines at which a block is split: what is left when the first line and `LINES_MAX` more are off has
an end only if it is too long."""
ADDED_MAX = 16
"""Lines that nats-server may add to a block; it adds 6."""
_FIRST_ADDED = f"{STREAM}: ".encode()
"""The beginning of what nats-server adds; no name that follows in it contains a blank."""


class ApiFault(Struct):
    """The `error` member of an answer; `code` is HTTP-like, `err_code` names the cause."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class ApiReply(Struct):
    """The members that all answers of the API have."""

    error: ApiFault | None = None


class PublishReply(ApiReply):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False


class StreamState(Struct):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    last_ts: str = ""
    subjects: dict[str, int] | None = None


class Replica(Struct):
    name: str = ""
    current: bool = False
    offline: bool = False
    active: int = 0


class Cluster(Struct):
    leader: str = ""
    replicas: list[Replica] = field(default_factory=list)


class StreamReply(ApiReply):
    cluster: Cluster | None = None
    config: dict[str, Any] = field(default_factory=dict)
    created: str = ""
    state: StreamState = field(default_factory=StreamState)
    total: int = 0


class PurgeReply(ApiReply):
    purged: int = 0


class SequencePair(Struct):
    consumer_seq: int = 0
    stream_seq: int = 0


class ConsumerReply(ApiReply):
    name: str = ""
    created: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    delivered: SequencePair = field(default_factory=SequencePair)
    ack_floor: SequencePair = field(default_factory=SequencePair)
    num_pending: int = 0
    num_ack_pending: int = 0


class ConsumerListReply(ApiReply):
    total: int = 0
    consumers: list[ConsumerReply] | None = None


class RawMessage(Struct):
    subject: str
    seq: int
    time: str
    hdrs: bytes = b""
    data: bytes = b""


class MessageReply(ApiReply):
    message: RawMessage | None = None


_publish_reply = msgspec.json.Decoder(PublishReply)


def publish_answer(message: Message) -> Answer:
    """Read a publish acknowledgement. An answer that is not from JetStream decides nothing."""
    try:
        reply = _publish_reply.decode(message.data)
    except msgspec.DecodeError:
        return Unanswered(f"the answer is not JetStream's: {message.data[:80]!r}")
    if reply.error is not None:
        return Refused(reply.error.err_code, reply.error.description)
    if not reply.stream:
        return Unanswered(f"the answer is not JetStream's: {message.data[:80]!r}")
    return Stored(reply.seq, reply.duplicate)


def stream_info(reply: StreamReply) -> StreamInfo:
    state = reply.state
    return StreamInfo(
        name=str(reply.config["name"]),
        created=reply.created,
        first=max(state.first_seq, 1),  # 0 while nothing was ever stored.
        last=state.last_seq,
        messages=state.messages,
        bytes=state.bytes,
        max_bytes=int(reply.config.get("max_bytes", -1)),
        config=reply.config,
        last_at=max(timestamp_of(state.last_ts), 0.0) if state.last_ts else 0.0,  # The year 1: none yet.
        heard_s=_heard_s(int(reply.config.get("num_replicas", 1)), reply.cluster),
        behind=_behind(reply.cluster),
    )


def _behind(cluster: Cluster | None) -> tuple[str, ...]:
    replicas = cluster.replicas if cluster else ()
    return tuple(each.name for each in replicas if each.offline or not each.current)


def _heard_s(replicas: int, cluster: Cluster | None) -> float:
    """Seconds since a majority followed the answering leader; `active` is 0 if it never heard of one."""
    others = replicas // 2
    if not others:
        return 0.0
    if cluster is None or not cluster.leader:
        return math.inf
    ages_ns = [each.active for each in cluster.replicas if each.current and not each.offline and each.active]
    return sorted(ages_ns)[others - 1] / 1e9 if len(ages_ns) >= others else math.inf


def consumer_info(reply: ConsumerReply) -> ConsumerInfo:
    return ConsumerInfo(
        name=reply.name,
        created=reply.created,
        delivered=reply.delivered.stream_seq,
        delivered_consumer=reply.delivered.consumer_seq,
        ack_floor=reply.ack_floor.stream_seq,
        ack_floor_consumer=reply.ack_floor.consumer_seq,
        pending=reply.num_pending,
        unacked=reply.num_ack_pending,
        config=reply.config,
    )


def stored_message(raw: RawMessage) -> StoredMessage:
    """A message that the leader returned to `STREAM.MSG.GET`.

    Headers that the server adds in a direct get could only come from the producer here. So they are removed,
    and a message has the same headers on every way of reading it.
    """
    headers = parse_block(raw.hdrs)
    for name in DIRECT_GET:
        headers.pop(name, None)
    return StoredMessage(raw.subject, raw.seq, timestamp_of(raw.time), headers, raw.data)


def is_page_part(message: Message) -> bool:
    """True if the answer to a direct get is a message; otherwise it is the status that ends the page.

    The header `Status` proves nothing, since a producer may have stored one.
    """
    return message.headers is not None and TIME_STAMP in message.headers


def page(parts: list[Message]) -> Page | Unanswered:
    """The page that these answers to one batch direct get form; the last of them is its status.

    Each message names the one before it, so a lost one is not mistaken for a gap in the positions.
    """
    end = parts.pop().headers or {}
    status = end.get(STATUS)
    if status == "404":
        return Page([], 0)
    if status != "204":
        return Unanswered(f"direct get: {status} {end.get('Description', '')}".rstrip())
    messages: list[StoredMessage] = []
    before = "0"
    for part in parts:
        headers = part.headers or {}
        if headers[LAST_SEQUENCE] != before:
            return Unanswered("direct get: a message of the page was lost")
        before = headers[SEQUENCE]
        messages.append(_page_message(part.data, headers))
    if end.get(LAST_SEQUENCE) != before:
        return Unanswered("direct get: the end of the page was lost")
    return Page(messages, int(end.get(NUM_PENDING, "0")), int(end.get(UP_TO_SEQUENCE, "0")))


def _page_message(data: bytes, headers: dict[str, str]) -> StoredMessage:
    subject, position, time = headers[SUBJECT], headers[SEQUENCE], headers[TIME_STAMP]
    for name in DIRECT_GET:
        headers.pop(name, None)
    return StoredMessage(subject, int(position), timestamp_of(time), headers, data)


class SharedHeaders(dict[str, str]):
    """Headers of many messages, which do not change: their block is written once.

    Raises ValueError like `header_block`.
    """

    __slots__ = ("block",)

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__(headers)
        self.block = header_block(headers)


def header_block(headers: dict[str, str] | None) -> bytes:
    """Write a whole block of headers. Raises ValueError if one of them would be read as several."""
    if isinstance(headers, SharedHeaders):
        return headers.block
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) if headers else ""
    block = f"NATS/1.0\r\n{lines}\r\n"
    ends = 2 + (len(headers) if headers else 0)
    if block.count("\n") != ends or block.count("\r") != ends:
        raise ValueError("a header contains the end of a line")
    return block.encode()


def parse_block(raw: bytes, *, appended: bool = False) -> dict[str, str]:
    """Parse a whole block of headers; its first line may contain a status (ADR-4).

    `appended`: nats-server may have put headers of its own behind stored ones. It cuts off two bytes for
    that, whatever they are. So on every way of reading, the last two bytes do not count, nor does a line that
    has no end before them. Of a block with too many lines or bytes, nothing but these headers is parsed.
    """
    stored, added = raw[:-2], b""
    if appended and (end := raw.rfind(_FIRST_ADDED)) >= 0:
        stored, added = raw[:end], raw[end:]
    lines: list[str] = []
    if not stored[BLOCK_BYTES_MAX - 2 :]:  # Without a call of `len`: every message passes here.
        lines = stored.decode("utf-8", "replace").split("\r\n", _SPLITS_MAX)
    is_read = lines != [] and not lines[_SPLITS_MAX:]
    if not is_read:
        lines = [_NO_STATUS, ""]
    first, lines[0], lines[-1] = lines[0], "", ""
    if added:
        lines += added.decode("utf-8", "replace").split("\r\n", ADDED_MAX)[:ADDED_MAX]
    headers: dict[str, str] = {}
    for line in lines:
        if line:
            name, colon, value = line.partition(":")
            if colon:
                headers[name.strip()] = value.strip()
    if not is_read:
        headers[UNREAD] = str(len(stored) + 2)
    elif first != _NO_STATUS:
        status, _, description = first.removeprefix(_BEFORE_STATUS).partition(" ")
        if first.startswith(_BEFORE_STATUS) and status.isascii() and status.isdigit():
            headers[STATUS] = status
            if description:
                headers[DESCRIPTION] = description.strip()
    return headers


def timestamp_of(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time in UTC, with all its nanoseconds.

    The same time comes as an integer of nanoseconds in the reply subject of a delivered message
    (`streams.reading.reply_subject`). Both must give the same float; `datetime` would truncate it.
    """
    whole = int(datetime.fromisoformat(text[:_WHOLE] + "+00:00").timestamp())
    nanoseconds = int(text[_WHOLE + 1 : -1].ljust(9, "0") or 0)
    return (whole * 1_000_000_000 + nanoseconds) / 1e9


def rfc3339(at: float) -> str:
    """The time `at` (seconds since the epoch) as the server reads it, rounded down by 1 to 2 µs.

    A float is exact to a quarter of a microsecond, so the result is never after the message's own
    `stored_at`.
    """
    seconds, microseconds = divmod(int(at * 1e6) - 1, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{microseconds:06}Z"
