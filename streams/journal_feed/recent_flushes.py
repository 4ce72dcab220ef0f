"""Reads the last seconds of the journal, for measures of what happens now.

Each read continues at the end of the last one. If the journal grows faster than it can be read, only its end
is read and measured.
"""

from msgspec import Struct

from actors.machine.facts import AnyFact
from streams.bounded_gather import in_turns
from streams.clock import server_time
from streams.installation.topology import Names
from streams.journal.envelope import decode_flush
from streams.nats.jetstream import ALL_SUBJECTS, JetStream

RECENT_SPAN_S = 15.0
"""The time that is measured: long enough for a receiver that gets one event in some seconds."""
READ_MESSAGES_MAX = 1024
MESSAGES_MAX = 4096
BYTES_MAX = 16 << 20
"""Most of the journal that is read at once: some 60,000 facts, half a second."""


class RecentFlush(Struct, frozen=True):
    """The facts of a flush, and when it was stored."""

    stored_at: float
    facts: tuple[AnyFact, ...]


class RecentFlushes:
    """The flushes of all shards, or of one, as they come; `now` is the server's time of the last read.

    `since` is the instant from which on everything was read; at first `span_s` seconds before that time.
    """

    def __init__(
        self, js: JetStream, names: Names, shard: int | None = None, span_s: float = RECENT_SPAN_S
    ) -> None:
        self._js = js
        self._names = names
        self._subject = ALL_SUBJECTS if shard is None else names.journal_of(shard)
        self._span_s = span_s
        self._read_to: int | None = None
        self.since = self.now = 0.0

    async def read_new(self) -> list[RecentFlush]:
        """Reads the facts since the last read; the first time, those of the span.

        Raises `Unavailable`, `ApiError` and `NewerVersion`.
        """
        js, stream = self._js, self._names.journal
        self.now = await server_time(js, stream)
        info = await js.existing_stream(stream)
        mean = info.bytes // max(info.messages, 1) + 1
        earliest = info.last - min(MESSAGES_MAX, BYTES_MAX // mean)
        if self._read_to is None or not earliest <= self._read_to <= info.last:
            first = await js.first_since(stream, ALL_SUBJECTS, self.now - self._span_s)
            start = info.last if first is None else min(first.position - 1, info.last)
            self.since, self._read_to = self.now - self._span_s, start
            if start < earliest:
                found = await js.next_message(stream, ALL_SUBJECTS, earliest + 1)
                self.since, self._read_to = found.stored_at if found else self.now, earliest
        return await self._read(info.last)

    def begin_again(self) -> None:
        """Let the next read be like the first one."""
        self._read_to = None

    async def _read(self, end: int) -> list[RecentFlush]:
        js, stream, found = self._js, self._names.journal, list[RecentFlush]()
        assert self._read_to is not None
        while self._read_to < end:
            page = await js.read(stream, self._subject, self._read_to + 1, READ_MESSAGES_MAX)
            async for message in in_turns(page.messages):
                where = f"message {message.position} of {stream}"
                found.append(RecentFlush(message.stored_at, decode_flush(message.data, where).facts))
            self._read_to = page.messages[-1].position if page.messages and page.pending else end
        return found
