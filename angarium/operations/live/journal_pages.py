"""Pages of the journal, live and without a ledger, and the parts that were missed.

Nothing is buffered: the next page is read once the previous one has been taken. If the journal is purged
faster than its reader reads, the reader learns what it missed.
"""

import asyncio
import re
from collections.abc import AsyncGenerator

from msgspec import Struct

from actors.errors import BadInput
from streams.installation.topology import Names
from streams.journal_feed.journal_reader import READ_BYTES_MAX, Gap, JournalReader
from streams.lost_tails.marks import Mark
from streams.lost_tails.read_positions import BEGINNING, ReadPosition
from streams.nats.answers import StoredMessage
from streams.nats.errors import StreamRecreated
from streams.nats.jetstream import ALL_SUBJECTS, JetStream
from streams.nats.retry import retry_until_answered, stream_info

JOURNAL_POLL_S = 0.2
_ID = re.compile(r"([1-9][0-9]{0,17})-([0-9]{1,9})\Z")


class Missed(Struct, frozen=True):
    """A part of the journal that could not be read, and why."""

    why: str


class Restarted(Missed, frozen=True):
    """A part that is lost with the journal or its tail: positions are used again."""


class AttemptPosition(Struct, frozen=True, order=True):
    """A position in the journal, behind the attempt that was read last.

    It is the attempt with that `ordinal`, counted from 1, in the message at `position`; as a text, its id.
    """

    position: int = 0
    ordinal: int = 0

    def __str__(self) -> str:
        return f"{self.position}-{self.ordinal}"


def parse_attempt_position(name: str) -> AttemptPosition:
    """The position that the id of an attempt names. Raises BadInput."""
    if (found := _ID.match(name)) is None:
        raise BadInput(
            f"{name[:60]!r} is not the id of an attempt; leave it out, or give one that tail has shown"
        )
    return AttemptPosition(int(found[1]), int(found[2]))


class JournalPages:
    """The messages from now on, or from the time `since`, or after a mark.

    `start` finds the beginning; `read_to` is how far it was read. One read has at most `bytes_max` bytes.
    """

    def __init__(self, js: JetStream, names: Names, *, bytes_max: int = READ_BYTES_MAX) -> None:
        self.read_to = BEGINNING
        self._js = js
        self._names = names
        self._stream = names.journal
        self._bytes_max = bytes_max

    async def start(
        self, *, since: float | None = None, after: AttemptPosition | None = None
    ) -> Missed | None:
        """Wait for NATS; returns what the journal lacks after the mark. Raises ApiError without one."""
        info = await stream_info(self._js, self._stream)
        position, missed = info.last, None
        if after is not None:
            position = min(after.position - 1, info.last)
            if after.position > info.last + 1:
                missed = Missed(f"the journal ends before {after}: it is not the one that had it")
        elif since is not None:
            first = await retry_until_answered(
                lambda: self._js.first_since(self._stream, ALL_SUBJECTS, since)
            )
            position = info.last if first is None else first.position - 1
        self.read_to = ReadPosition(created=info.created, mark=Mark(position=position))
        return missed

    async def follow(self, *, ends: bool = False) -> AsyncGenerator[list[StoredMessage] | Missed, None]:
        """Continue forever, even after NATS was away. Raises ApiError if the journal does not exist.

        With `ends`, it ends where the journal does.
        """
        reader = JournalReader(self._js, self._names)
        try:
            while True:
                try:
                    self.read_to = await reader.check(self.read_to)
                    found = await reader.read(self.read_to.position, self._bytes_max)
                except StreamRecreated as error:
                    self.read_to = await self._position_after(self.read_to)
                    yield Restarted(str(error))
                    continue
                if reader.doubtful:
                    continue  # These messages may be from another stream.
                match found:
                    case Gap(first, last, until_at):
                        self._pass(last, until_at)
                        yield Missed(f"messages {first} to {last} of the journal were purged")
                    case [] if ends:
                        return
                    case []:
                        await asyncio.sleep(JOURNAL_POLL_S)
                    case messages:
                        self._pass(messages[-1].position, messages[-1].stored_at)
                        yield messages
        finally:
            reader.stop()

    async def _position_after(self, lost: ReadPosition) -> ReadPosition:
        """The position after a lost tail: before the first message stored since the last one read.

        If the journal was created again, it is followed from its beginning.
        """
        info = await stream_info(self._js, self._stream)
        if info.created != lost.created:
            return ReadPosition(created=info.created)
        position = info.last
        if since := lost.mark.stored_at:
            first = await retry_until_answered(
                lambda: self._js.first_since(self._stream, ALL_SUBJECTS, since)
            )
            position = info.last if first is None else first.position - 1
        return ReadPosition(created=info.created, mark=Mark(position=position))

    @property
    def next_attempt(self) -> AttemptPosition:
        """The position before the next message."""
        return AttemptPosition(self.read_to.position + 1)

    def _pass(self, position: int, stored_at: float) -> None:
        mark = Mark(position=position, stored_at=stored_at)
        self.read_to = ReadPosition(created=self.read_to.created, mark=mark)
