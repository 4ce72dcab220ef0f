"""Finds, reads and deletes dead letters; `streams.resending.redrive` sends them again.

Letters are found by batch direct get, which a lagging replica may answer (ADR-31). That is good enough for
showing them: at worst the newest letters are missing, or deleted ones are shown. `DeadLetters.pages` asks the
leader when a replica has no more. Before you act on a letter, ask the leader for it (`DeadLetters.letter`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar
from urllib.parse import unquote

from msgspec import Struct

from streams.dead_letters import bury
from streams.installation.topology import Names
from streams.lost_tails.deletion import delete_known
from streams.lost_tails.marks import Mark
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_for_command
from streams.nats.wire_names import (
    DEAD_ATTEMPTS,
    DEAD_BODY,
    DEAD_PROBLEM,
    DEAD_REASON,
    DEAD_RESPONSE,
    DEAD_SEQUENCE,
    DEAD_STATUS,
    DEAD_TRANSFORM,
    EVENT_ID,
    EVENT_TYPE,
)
from streams.reading import messages

REASONS = (
    "expired", "attempts", "rejected", "overflow", "evicted", "skipped", "unknown_receiver", "malformed",
    "transform",
)  # fmt: skip
REQUESTS_MAX = 32
"""Requests about single letters that are under way at a time."""
OWNERS_READ_MAX = 4
"""Letters that are read at a time to find out whose they are. Each comes with its body, which is dropped."""
SPAN_MIN, SPAN_MAX = 256, 16_384
"""Positions of the stream that are searched at a time from the newest on."""
SPAN_BYTES_MAX = 4 << 20
"""Bytes that are read of one span; if there are more, a shorter one is read."""
SPAN_DIVISOR = 16
SENT_BYTES_MAX = 4 << 20
"""Bytes of one read of letters that are sent again."""
READ_BYTES_MAX = 1 << 20
"""Bytes of any other read. With 4 MiB, 16 readers fill what nats-server keeps for a client (64 MiB)."""

T = TypeVar("T")


class LetterHead(Struct, frozen=True):
    """A dead letter without its body: at `position` in its stream since `at`, in seconds since the epoch."""

    position: int
    receiver: str
    at: float
    headers: dict[str, str]

    @property
    def mark(self) -> Mark:
        """The position of the letter, and when it was stored there."""
        return Mark(position=self.position, stored_at=self.at)

    @property
    def reason(self) -> str:
        return self.headers.get(DEAD_REASON, "")

    @property
    def sequence(self) -> int | None:
        """The event's sequence number; None if it never got one."""
        return _count(self.headers.get(DEAD_SEQUENCE))

    @property
    def attempts(self) -> int | None:
        return _count(self.headers.get(DEAD_ATTEMPTS))

    @property
    def status(self) -> int | None:
        """The status of the receiver's last answer; None if it gave none."""
        return _count(self.headers.get(DEAD_STATUS))

    @property
    def response(self) -> str:
        """The beginning of the answer to the last attempt; empty if it is not known."""
        return unquote(self.headers.get(DEAD_RESPONSE, ""), errors="replace")

    @property
    def event_id(self) -> str:
        return self.headers.get(EVENT_ID, "")

    @property
    def type(self) -> str:
        return self.headers.get(EVENT_TYPE, messages.TYPE_DEFAULT)

    @property
    def problem(self) -> str:
        """The problem of a malformed event, in a sentence; empty for any other event."""
        return self.headers.get(DEAD_PROBLEM, "")

    @property
    def transform(self) -> str:
        """The mark of the transform by which its body was to be shaped; empty without one."""
        return self.headers.get(DEAD_TRANSFORM, "")

    @property
    def is_body_gone(self) -> bool:
        """True if only the headers could be kept."""
        return self.headers.get(DEAD_BODY) == bury.BODY_GONE


class ListedLetter(LetterHead, frozen=True):
    """A dead letter as lists show it: its body was read and dropped, and had `size` bytes."""

    size: int


class Letter(LetterHead, frozen=True):
    """A whole dead letter."""

    body: bytes

    @property
    def size(self) -> int:
        return len(self.body)


class LetterFilter(Struct, frozen=True, kw_only=True):
    """A filter of letters.

    - `receivers`: `<tenant>.<name>`, either of which may be `*`.
    - `reasons`: if empty, all.
    - `since`, `until`: the stream's time of the letter, in seconds since the epoch; `until` is excluded.
    """

    receivers: str = "*.*"
    reasons: frozenset[str] = frozenset()
    since: float | None = None
    until: float | None = None

    def wants(self, letter: LetterHead) -> bool:
        """True if letters of this receiver are wanted."""
        in_time = (self.since is None or letter.at >= self.since) and not self.is_past(letter)
        return in_time and (not self.reasons or letter.reason in self.reasons)

    def is_past(self, letter: LetterHead) -> bool:
        """True if this letter and all later ones are too new: letters are ordered by time."""
        return self.until is not None and letter.at >= self.until


class LetterPage(Struct, frozen=True):
    """One page of a search through the letters.

    - `letters`: those that were selected.
    - `seen`: how many were read.
    - `unseen`: about how many are still to be read.
    - `up_to`: the last position that was read, in reading order.
    """

    letters: list[Letter]
    seen: int
    unseen: int
    up_to: int


class NewestPage(Struct, frozen=True):
    """One page of a search from the newest letter on, like `LetterPage`; `size`: bytes that were read."""

    letters: list[ListedLetter]
    seen: int
    unseen: int
    up_to: int
    size: int


class DeadLetters:
    """The dead letters of one installation. A request that gets no answer in time raises `Unavailable`."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._names = names
        self._stream = names.dead_letters

    async def end(self) -> int:
        """The position of the newest letter. Raises `Unavailable`, and `ApiError` without a stream."""
        newest = await retry_for_command(self._js.last_message, self._stream, self._names.dead("*.*"))
        return newest.position if newest else 0

    async def pages(
        self, selection: LetterFilter, end: int, after: int = 0, bytes_max: int = SENT_BYTES_MAX
    ) -> AsyncIterator[LetterPage]:
        """The letters after `after`, up to and including `end`, the oldest first; none is missing.

        A page has about `bytes_max` bytes at most.
        """
        subject, position = self._names.dead(selection.receivers), after + 1
        if selection.since is not None:
            first = await retry_for_command(self._js.first_since, self._stream, subject, selection.since)
            position = max(position, first.position if first else end + 1)
        while position <= end:
            found = await retry_for_command(self._js.read, self._stream, subject, position, 256, bytes_max)
            messages, unseen = found.messages, found.pending
            position = messages[-1].position + 1 if messages else position
            if not unseen and position <= end:
                # A replica that lags has no more; the leader knows.
                newer = await retry_for_command(self._js.next_message, self._stream, subject, position)
                if newer is not None and newer.position <= end:
                    messages, position = [*messages, newer], newer.position + 1
                    unseen = int(position <= end)
            letters = [self._letter(each) for each in messages if each.position <= end]
            wanted = [each for each in letters if selection.wants(each)]
            up_to = letters[-1].position if letters else end
            yield LetterPage(wanted, len(letters), unseen, up_to)
            if not unseen or (letters and selection.is_past(letters[-1])):
                return

    async def newest(
        self, selection: LetterFilter, end: int, bytes_max: int = SPAN_BYTES_MAX
    ) -> AsyncIterator[NewestPage]:
        """The letters, the newest first and without bodies, for callers that want only some of them.

        A page has about `bytes_max` bytes at most, or one letter.
        """
        subject, oldest, span, given_up = self._names.dead(selection.receivers), 1, SPAN_MIN, 0
        if selection.since is not None:
            first = await retry_for_command(self._js.first_since, self._stream, subject, selection.since)
            oldest = first.position if first else end + 1
        while end >= oldest:
            start = max(oldest, end - span + 1)
            letters, size = await self._between(subject, start, end, bytes_max)
            if size > bytes_max and start < end:
                given_up += size
                span = max(1, (end - start + 1) // SPAN_DIVISOR)
                continue
            wanted = [each for each in reversed(letters) if selection.wants(each)]
            yield NewestPage(wanted, len(letters), start - oldest, start, given_up + size)
            if len(letters) >= SPAN_MIN:
                span = SPAN_MIN
            elif size <= bytes_max // 2:
                span = min(span * 2, SPAN_MAX)
            end, given_up = start - 1, 0

    async def _between(
        self, subject: str, start: int, end: int, bytes_max: int
    ) -> tuple[list[ListedLetter], int]:
        """The letters at these positions, the oldest first, and their bytes; stops beyond `bytes_max`."""
        letters: list[ListedLetter] = []
        size, each_max = 0, min(bytes_max, READ_BYTES_MAX)
        while start <= end and size <= bytes_max:
            batch = min(SPAN_MIN, end - start + 1)
            found = await retry_for_command(self._js.read, self._stream, subject, start, batch, each_max)
            messages = [each for each in found.messages if each.position <= end]
            letters += map(self._listed, messages)
            size += sum(map(_size, messages))
            if not found.pending:
                break
            start = found.messages[-1].position + 1
        return letters, size

    async def letter(self, position: int) -> Letter | None:
        """The letter at `position`, from the leader."""
        found = await retry_for_command(self._js.message, self._stream, position)
        return self._letter(found) if found else None

    async def letters(self, positions: Iterable[int]) -> list[Letter]:
        """The letters that exist at these positions, from the leader, oldest first."""
        found: list[Letter] = []

        async def read(position: int) -> None:
            if (letter := await self.letter(position)) is not None:
                found.append(letter)

        await _for_each(positions, read)
        return sorted(found, key=lambda letter: letter.position)

    async def receivers(self, positions: Iterable[int]) -> dict[int, str]:
        """The receivers of the letters that exist at these positions, from the leader."""
        found: dict[int, str] = {}

        async def read(position: int) -> None:
            if (letter := await self.letter(position)) is not None:
                found[position] = letter.receiver

        await _for_each(positions, read, OWNERS_READ_MAX)
        return found

    async def drop(self, letters: Iterable[Mark], on_dropped: Callable[[int], None] = lambda _: None) -> int:
        """Delete these letters; returns how many there were. `on_dropped` is called for each that is gone.

        A letter that has taken the position of one that was lost stays.
        """
        dropped = 0

        async def drop(letter: Mark) -> None:
            nonlocal dropped
            if await retry_for_command(delete_known, self._js, self._stream, letter):
                dropped += 1
            on_dropped(letter.position)

        await _for_each(letters, drop)
        return dropped

    def _letter(self, message: StoredMessage) -> Letter:
        receiver = self._names.receiver_of_letter(message.subject)
        return Letter(message.position, receiver, message.stored_at, message.headers, message.data)

    def _listed(self, message: StoredMessage) -> ListedLetter:
        receiver = self._names.receiver_of_letter(message.subject)
        return ListedLetter(message.position, receiver, message.stored_at, message.headers, len(message.data))


def _size(message: StoredMessage) -> int:
    """About the bytes that came with a message."""
    return len(message.data) + sum(len(name) + len(value) for name, value in message.headers.items())


async def _for_each(
    each_of: Iterable[T], do: Callable[[T], Awaitable[None]], together: int = REQUESTS_MAX
) -> None:
    """Call `do` for all of them, `together` at a time; raises the first exception that it raises."""
    rest = iter(each_of)

    async def work() -> None:
        for each in rest:
            await do(each)

    await asyncio.gather(*(work() for _ in range(together)))


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
