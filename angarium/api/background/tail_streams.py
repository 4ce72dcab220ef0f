"""Live attempts for the streams of one process: the journal is read once for all of them.

The journal is read while there is a stream. Each stream has a buffer for its next events, and ends if its
buffer is full: its client reconnects with the last id that it has. A stream that continues from an earlier
place first catches up, by a reading of its own: a page at a time, in turns with the streams of other tenants,
so that a client that continues from long ago does not make the others wait.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from actors.errors import AngariumError
from actors.ids import tenant_of
from angarium.access import Access
from angarium.api.background.spaced_work import SpacedWork
from angarium.api.problems import ProblemRaised, unavailable
from angarium.operations.live.journal_pages import (
    AttemptPosition,
    JournalPages,
    Missed,
    Restarted,
    parse_attempt_position,
)
from angarium.operations.live.tail import TailFilter, attempts
from streams.buckets.api_tokens import Token
from streams.lost_tails.read_positions import ReadPosition
from streams.nats.answers import StoredMessage

HEARTBEAT_EVERY_S = 15.0
STREAMS_MAX = 128
TENANT_STREAMS_MAX = 32
TOKEN_STREAMS_MAX = 8
BUFFER_MAX = 256 << 10
"""Bytes of a client's buffer: some thousand attempts."""
READ_BYTES = 256 << 10
"""Bytes of one read. A page is processed in one go; other requests wait meanwhile."""
CATCH_UP_PAUSE_S = 0.03
"""Pause after each page that a stream reads while it catches up, so that others get their turn."""
START_TIMEOUT_S = 5.0
TOKENS_EVERY_S = 0.2
RECONNECT_AFTER_MS = 1000

REVOKED = "the token is no longer valid"
STOPPING = "this process is stopping; reconnect with the last id"
TOO_SLOW = "the client reads too slowly; reconnect with the last id"

log = logging.getLogger(__name__)


class TailStream:
    """The stream of one client, made by `Tails.open`: `pieces` until it ends, then `Tails.close`."""

    def __init__(self, token_id: str, token: Token, wanted: TailFilter, after: AttemptPosition) -> None:
        self.token_id = token_id
        self.token = token
        self.wanted = wanted
        self.tenant = tenant_of(wanted.about or "")
        self.after = after
        self.ended = ""
        self.catching_up: asyncio.Task[None] | None = None
        self._waiting: deque[bytes] = deque()
        self._held = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The events as they come; while there are none, a heartbeat comment with the last position."""
        yield b"retry: %d\n%b\n" % (RECONNECT_AFTER_MS, _id(self.after))
        while True:
            if self._waiting:
                piece = b"".join(self._waiting)
                self._waiting.clear()
                self._held = 0
                self._room.set()
                yield piece
            elif self.ended:
                yield _event("end", Missed(self.ended))
                return
            else:
                self._news.clear()
                try:
                    async with asyncio.timeout(HEARTBEAT_EVERY_S):
                        await self._news.wait()
                except TimeoutError:
                    yield b":\n%b\n" % _id(self.after)

    def give(self, piece: bytes) -> None:
        """Queue an event; the stream ends if its buffer is full."""
        if self.ended:
            return
        if self._held + len(piece) > BUFFER_MAX:
            self.end(TOO_SLOW)
            return
        self._waiting.append(piece)
        self._held += len(piece)
        self._news.set()

    async def has_room(self) -> None:
        """Return when half of the buffer is free, or the stream has ended."""
        while self._held > BUFFER_MAX // 2 and not self.ended:
            self._room.clear()
            await self._room.wait()

    def end(self, why: str) -> None:
        """End the stream once the client has taken the queued events."""
        self.ended = self.ended or why
        self._news.set()
        self._room.set()


class Tails:
    """The streams of one process. `known` returns the valid token with an id, or None."""

    def __init__(self, access: Access, known: Callable[[str], Token | None]) -> None:
        self._access = access
        self._known = known
        self._streams: set[TailStream] = set()
        self._live: set[TailStream] = set()
        self._streams_by_token = Counter[str]()
        self._streams_by_tenant = Counter[str]()
        self._pages: JournalPages | None = None
        self._starting = asyncio.Lock()
        self._catch_ups = SpacedWork(CATCH_UP_PAUSE_S)
        self._tasks: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[TailStream]:
        return iter(self._streams)

    async def open(self, token_id: str, token: Token, wanted: TailFilter, after: str | None) -> TailStream:
        """A stream from now on, or after the attempt with the id `after`.

        Raises BadInput, and `ProblemRaised` if there are too many.
        """
        wanted.check()
        position = None if after is None else parse_attempt_position(after)
        if len(self._streams) >= STREAMS_MAX:
            raise unavailable(
                f"this process already has {STREAMS_MAX} streams; try another process, or later"
            )
        for who, count, most in (
            ("a token", self._streams_by_token[token_id], TOKEN_STREAMS_MAX),
            ("the tokens of a tenant together", self._streams_by_tenant[token.tenant], TENANT_STREAMS_MAX),
        ):
            if count >= most:
                detail = f"{who} may have {most} streams at once in a process; end one first"
                raise ProblemRaised(429, "rate", detail, retry_after="1")
        stream = TailStream(token_id, token, wanted, position or AttemptPosition())
        self._streams.add(stream)
        self._streams_by_token[token_id] += 1
        self._streams_by_tenant[token.tenant] += 1
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                pages = await self._reading()
        except TimeoutError:
            self.close(stream)
            raise unavailable("NATS cannot be reached; send it again") from None
        except BaseException:
            self.close(stream)
            raise
        if position is None:
            stream.after = pages.next_attempt
            self._live.add(stream)
        else:
            stream.catching_up = asyncio.create_task(self._guarded(self._catch_up(stream), stream.end))
        return stream

    def close(self, stream: TailStream) -> None:
        """Close a stream; if it was the last one, stop reading."""
        if stream not in self._streams:
            return
        self._streams.discard(stream)
        self._live.discard(stream)
        self._streams_by_token -= Counter({stream.token_id: 1})
        self._streams_by_tenant -= Counter({stream.token.tenant: 1})
        stream.end(STOPPING)
        if stream.catching_up is not None:
            stream.catching_up.cancel()
        if not self._streams:
            self._stop_reading()

    def stop(self) -> None:
        """End all streams; each sends what waits in its buffer first."""
        self._end_all(STOPPING)

    def _end_all(self, why: str) -> None:
        for each in self._streams:
            each.end(why)

    def _stop_reading(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks, self._pages = [], None

    # ---- the one reading

    async def _reading(self) -> JournalPages:
        async with self._starting:
            if self._pages is None:
                pages = self._new_pages()
                await pages.start()
                self._pages = pages
                self._tasks = [
                    asyncio.create_task(self._guarded(self._read(pages), self._broken)),
                    asyncio.create_task(self._watch_tokens()),
                ]
            return self._pages

    def _new_pages(self) -> JournalPages:
        return JournalPages(self._access.js, self._access.names, bytes_max=READ_BYTES)

    async def _read(self, pages: JournalPages) -> None:
        async with aclosing(pages.follow()) as found:
            async for page in found:
                match page:
                    case Missed():
                        self._miss(pages, page)
                    case messages:
                        self._pass_on(messages)
                        for stream in self._live:
                            stream.after = max(stream.after, pages.next_attempt)

    def _miss(self, pages: JournalPages, missed: Missed) -> None:
        """Tell every live stream what it missed. A restarted journal uses its positions again."""
        again = isinstance(missed, Restarted)
        for stream in self._live:
            stream.give(_event("missed", missed))
            stream.after = pages.next_attempt if again else max(stream.after, pages.next_attempt)

    def _pass_on(self, messages: list[StoredMessage]) -> None:
        of_tenant: dict[str, list[TailStream]] = {}
        for stream in self._live:
            of_tenant.setdefault(stream.tenant, []).append(stream)
        for message in messages:
            for position, attempt in attempts(message, lambda receiver: tenant_of(receiver) in of_tenant):
                piece = b""
                for stream in of_tenant[tenant_of(attempt.receiver)]:
                    if position > stream.after and stream.wanted.takes(attempt):
                        piece = piece or _event("attempt", attempt, position)
                        stream.give(piece)

    # ---- a stream that continues from an earlier place

    async def _catch_up(self, stream: TailStream) -> None:
        pages = self._new_pages()
        missed = await pages.start(after=stream.after)
        if missed is not None:
            stream.give(_event("missed", missed))
            stream.after = pages.next_attempt
        async with aclosing(pages.follow()) as found:
            while not self._joins(stream, pages.read_to):
                async with self._catch_ups.turn(stream.token.tenant):
                    page = await anext(found)
                match page:
                    case Missed() as missed:
                        stream.give(_event("missed", missed))
                    case messages:
                        await self._give_all(stream, messages)
                stream.after = pages.next_attempt

    async def _give_all(self, stream: TailStream, messages: list[StoredMessage]) -> None:
        for message in messages:
            for position, attempt in attempts(message, stream.wanted.follows):
                if position > stream.after and stream.wanted.takes(attempt):
                    await stream.has_room()
                    stream.give(_event("attempt", attempt, position))

    def _joins(self, stream: TailStream, place: ReadPosition) -> bool:
        """Let the stream join the live streams, if it has read as far as they have."""
        if self._pages is None:
            return True  # It has ended.
        others = self._pages.read_to
        if place.created != others.created or place.position < others.position:
            return False
        self._live.add(stream)
        return True

    # ---- ends

    async def _watch_tokens(self) -> None:
        while True:
            await asyncio.sleep(TOKENS_EVERY_S)
            for stream in self._streams:
                if self._known(stream.token_id) != stream.token:
                    stream.end(REVOKED)

    async def _guarded(self, work: Coroutine[Any, Any, None], broken: Callable[[str], None]) -> None:
        """Run `work`; if the journal cannot be read, call `broken` with the reason."""
        try:
            await work
        except AngariumError as error:
            log.error("tail.stopped", extra={"why": str(error)})
            broken(str(error))

    def _broken(self, why: str) -> None:
        self._end_all(why)
        self._stop_reading()


def _id(position: AttemptPosition) -> bytes:
    return b"id: %b\n" % str(position).encode()


def _event(kind: str, content: Struct, position: AttemptPosition | None = None) -> bytes:
    id_line = b"" if position is None else _id(position)
    return b"event: %b\n%bdata: %b\n\n" % (kind.encode(), id_line, msgspec.json.encode(content))
