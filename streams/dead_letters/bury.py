"""Dead letters: events that could not be delivered, kept with their body, their headers and the reason.

The message is read again from the deliveries stream, so that a dead letter has exactly what the producer
published. The event's id is always in `Angarium-Id`, so that a redrive keeps it. The message id of the dead
letter consists of receiver and number: burying again adds nothing within the stream's duplicate window, and
an identical second letter after it.
"""

import asyncio
import logging
import re
from asyncio import gather
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from urllib.parse import quote

from actors.errors import Unavailable
from actors.ids import stable_hash
from actors.machine.facts import Burial
from streams.installation.topology import Names
from streams.journal.leadership import message_at
from streams.nats.answers import Answer, Refused, Stored, StoredMessage, Unanswered
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.protocol import BLOCK_BYTES_MAX, LINES_MAX
from streams.nats.retry import Pauses, ReasonLog
from streams.nats.wire_names import (
    CONTENT_TYPE,
    DEAD_ATTEMPTS,
    DEAD_BODY,
    DEAD_LETTER,
    DEAD_PROBLEM,
    DEAD_REASON,
    DEAD_RESPONSE,
    DEAD_SEQUENCE,
    DEAD_STATUS,
    DEAD_TRANSFORM,
    EVENT_ID,
    EVENT_REGION,
    EVENT_SOURCE,
    EVENT_TYPE,
    MESSAGE_ID,
    MESSAGE_TOO_LARGE,
    TRACEPARENT,
    TRACESTATE,
)
from streams.reading import messages

log = logging.getLogger(__name__)

RESPONSE_MAX = 1024
"""Length of the header with the beginning of the last answer, in characters."""
BODY_GONE = "gone"
"""Mark of a letter whose message had left the stream before it was buried; there is nothing to redrive."""
_LETTER_HEADERS = frozenset(map(str.lower, DEAD_LETTER))

LETTER_HEADERS_BYTES_MAX = BLOCK_BYTES_MAX - 64
"""Bytes of all headers of a letter: it has to be read again."""
FEW_HEADERS_BYTES_MAX = 8 << 10
"""Bytes of headers if the body leaves no room for more in the stream of the letters."""
_HEADERS_KEPT_FIRST = frozenset({
    EVENT_TYPE, EVENT_REGION, CONTENT_TYPE, TRACEPARENT, TRACESTATE, EVENT_SOURCE,
})  # fmt: skip
"""Headers that are needed when the event is sent again or erased: they have priority over all others."""
TOKEN_BYTES_MAX = 256
"""Bytes of a tenant or a name in the subject of a letter; valid ones have 64 at most."""

PAGE_BYTES_MAX = 1 << 20
UNKNOWN_AT_ONCE = 2
"""Number of letters for unknown receivers that all shards of a node publish at the same time.

With 16 at a time, and 60 messages read to find them, known receivers were delayed: their p95 rose to 1.6
times the usual one at 1,000 unknown receivers a second. With 2 it rises to 1.1 to 1.3 times.
"""
_SERVER_HEADER_PREFIX = "nats-"
_PLAIN = frozenset(map(chr, range(0x20, 0x7F))) - {"%"}
NO_ANSWERS: Mapping[int, str] = MappingProxyType({})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")


class DeadLetterWriter:
    """See `actors.ports.DeadLetterWriter`. It never gives up: a full stream only delays it."""

    def __init__(
        self, js: JetStream, names: Names, at_once: asyncio.Semaphore | None = None,
        within_lease: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        """All shards of a node share `at_once`: one shard at a time buries letters for unknown receivers.

        `within_lease` is asked before each letter. A later owner buries the same event, which may be erased
        after that.
        """
        self._within_lease = within_lease
        self._js = js
        self._names = names
        self._at_once = at_once or asyncio.Semaphore(1)

    async def bury(
        self, receiver: str, burials: Sequence[Burial], answers: Mapping[int, str] = NO_ANSWERS
    ) -> None:
        """Bury these events page by page, in the order of their stream: a thousand cost little more than one.

        A letter that is published again after a crash has no answer in it. JetStream drops it nevertheless:
        its message id consists of receiver and number alone.
        """
        left = {each.position: each for each in sorted(burials, key=lambda each: each.position)}
        pauses = Pauses(self._js)
        reason_log = ReasonLog(self._js, log, "dead_letter.waiting", receiver=receiver, position=min(left))
        while left:
            if next(iter(left.values())).receiver:  # Unknown receivers wait for all others, here and in NATS.
                async with self._at_once:
                    why = await self._try(receiver, left, answers, UNKNOWN_AT_ONCE)
            else:
                why = await self._try(receiver, left, answers, len(left))
            if why is None:
                continue
            reason_log.log_once(why)
            await pauses.wait()

    async def _try(
        self, receiver: str, left: dict[int, Burial], answers: Mapping[int, str], at_once: int
    ) -> str | None:
        """Bury the events of one page, and take them out of `left`; returns why some are still there."""
        try:
            page = await self._page(receiver, left)
        except (Unavailable, ApiError) as error:
            return str(error)
        found = iter(page.items())
        while some := list(islice(found, at_once)):
            buried = await gather(*(
                self.store_letter(receiver, left[at], message, answers.get(at, "")) for at, message in some
            ))  # fmt: skip
            for (position, _), why in zip(some, buried, strict=True):
                burial = left.pop(position)
                if why is not None:
                    left[position] = burial  # At the end, so that it does not hold up the others.
            if any(why is not None for why in buried):
                return next(why for why in buried if why is not None)
        return None

    async def _page(self, receiver: str, left: dict[int, Burial]) -> dict[int, StoredMessage | None]:
        """The first message in `left`, from the leader (None if it is gone), and those that follow it."""
        first, stream = next(iter(left)), self._names.deliveries
        receivers = {position: each.receiver or receiver for position, each in left.items()}
        message = await message_at(self._js, stream, first)
        if message is None or not message.subject.endswith(f".{receivers[first]}"):
            return {first: None}
        found: dict[int, StoredMessage | None] = {first: message}
        if len(left) > 1:
            subject = message.subject
            address = self._names.shard_and_receiver(subject)
            if left[first].receiver and address:  # Messages for others in the shard may be between them.
                subject = self._names.deliveries_of(address[0])
            page = await self._js.read(stream, subject, first + 1, len(left) - 1, PAGE_BYTES_MAX)
            found |= {
                each.position: each
                for each in page.messages
                if each.position in left and each.subject.endswith(f".{receivers[each.position]}")
            }
        return found

    async def store_letter(
        self, receiver: str, burial: Burial, message: StoredMessage | None, answer_text: str
    ) -> str | None:
        """Store the letter; returns None, or the reason why it is not stored."""
        if not self._within_lease():
            return "the lease of this node has expired"
        ours = _ours(burial.receiver or receiver, burial, message, answer_text)
        return await store(self._js, self._names, burial.receiver or receiver, message, ours)


async def store(
    js: JetStream, names: Names, receiver: str, message: StoredMessage | None, ours: dict[str, object]
) -> str | None:
    """Publish a letter: the message, as many of its headers as there is room for, and the headers about it.

    Returns None, or the reason why it is not stored.
    """
    about_it = {name: str(value) for name, value in ours.items() if value is not None}
    answer: Answer = Unanswered("")
    for limit in (LETTER_HEADERS_BYTES_MAX, FEW_HEADERS_BYTES_MAX):
        room, lines = limit - _size(about_it), LINES_MAX - len(about_it)
        kept = _passed_on(message.headers, room, lines) if message else {}
        body = message.data if message else b""
        answer = await js.publish(names.dead(filed_under(receiver)), body, kept | about_it)
        if not (isinstance(answer, Refused) and answer.code == MESSAGE_TOO_LARGE):
            break
    match answer:
        case Stored():
            return None
        case Refused(code, text):
            return f"{text} (JetStream error {code})"
        case Unanswered(why):
            return why


def filed_under(receiver: str) -> str:
    """The name under which letters are stored: `<tenant>.<name>`, with a hash for a part that is too long.

    Subject and inbox of a publish are in one line, and nats-server cuts the connection beyond 4,096 bytes.
    """
    return ".".join(
        token if len(token.encode()) <= TOKEN_BYTES_MAX else f"_{stable_hash(token)}"
        for token in receiver.split(".")
    )


def _ours(
    receiver: str, burial: Burial, message: StoredMessage | None, answer_text: str
) -> dict[str, object]:
    """The headers that say why the event is a dead letter; a producer cannot set them."""
    event = messages.stored_event(message) if message else None
    number = f"p{burial.position}" if burial.sequence is None else str(burial.sequence)
    problem = messages.receiver_problem(receiver[: messages.RECEIVER_CHECKED_MAX])
    return {
        EVENT_ID: event.id if event else None,
        MESSAGE_ID: f"{filed_under(receiver)}:{number}",
        DEAD_REASON: burial.reason,
        DEAD_SEQUENCE: burial.sequence,
        DEAD_ATTEMPTS: burial.attempts,
        DEAD_STATUS: burial.status,
        DEAD_TRANSFORM: burial.transform or None,
        DEAD_RESPONSE: encoded(answer_text) or None,
        DEAD_PROBLEM: problem or (event.malformed if event else "") or None,
        DEAD_BODY: None if event else BODY_GONE,
    }


def _passed_on(headers: dict[str, str], room: int, lines: int) -> dict[str, str]:
    """The headers that may be passed on to another stream, as many as fit into `room` bytes and these lines.

    The server's own (`Nats-Expected-…`, `Nats-TTL`, `Nats-Rollup`, …) would take effect again there; a name
    that the client library does not accept cannot be published at all; and only Angarium says why a letter is
    here.
    """
    kept = dict[str, str]()
    for name, value in sorted(headers.items(), key=lambda header: header[0] not in _HEADERS_KEPT_FIRST):
        if (
            not _NAME.match(name)
            or name.lower().startswith(_SERVER_HEADER_PREFIX)
            or name.lower() in _LETTER_HEADERS
        ):
            continue
        size = _size({name: value})
        if size <= room and len(kept) < lines:
            kept[name] = value
            room -= size
    return kept


def _size(headers: dict[str, str]) -> int:
    return sum(len(name) + len(value.encode()) + len(": \r\n") for name, value in headers.items())


def encoded(text: str) -> str:
    """The header for a text: its beginning, percent-encoded as UTF-8, so that ASCII stays readable.

    Blanks at both ends are removed, since they are not part of a header's value.
    """
    parts, length = list[str](), 0
    for c in text.strip()[:RESPONSE_MAX]:
        part = c if c in _PLAIN else quote(c, safe="", errors="replace")
        length += len(part)
        if length > RESPONSE_MAX:
            break
        parts.append(part)
    return "".join(parts).rstrip(" ")
