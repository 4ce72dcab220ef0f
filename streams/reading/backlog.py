"""The backlog of one receiver: read by batch direct get, and completed by asking the leader.

A direct get may be answered by a replica that lags (ADR-31), so its end proves nothing. If it ends below a
position that certainly existed, the leader is asked for the next message. If it has one, that is the next
event. If it has none, the read is complete, once it is certain that this leader was not deposed
(`streams.journal.leadership`).
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from msgspec.structs import replace

from actors.errors import ControlDenied, Unavailable
from actors.machine.event import Event
from actors.ports import BacklogPage, ShardPage
from streams.installation.topology import Names
from streams.journal.leadership import ensure_no_message, info_since, last_messages, message_at
from streams.lost_tails.deletion import delete_known
from streams.lost_tails.marks import NO_MARK, Mark, higher_mark
from streams.nats.answers import StoredMessage
from streams.nats.errors import ApiError, NotPermitted
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses
from streams.reading.messages import RECEIVER_CHECKED_MAX, receiver_problem, stored_event

READERS_MAX = 16
"""Reads under way at a time, in all shards of a node: for a cold message the server reads a whole block."""

PAGE_BYTES_MAX = 1 << 20

T = TypeVar("T")


class Backlog:
    """The backlogs in one shard (see `actors.ports.Backlog`). All shards of a node share `readers`.

    `mark` is the highest message that was read; the consumer may not have handed it out yet.
    """

    def __init__(
        self, js: JetStream, names: Names, shard: int, readers: asyncio.Semaphore, *, replicated: bool = False
    ) -> None:
        self._js = js
        self._stream = names.deliveries
        self._names = names
        self._shard = shard
        self._readers = readers
        self._replicated = replicated
        self.mark = NO_MARK

    async def read(self, receiver: str, after: int, up_to: int, count_max: int) -> BacklogPage:
        """The next events above `after`: at most `count_max`, and about 1 MiB."""
        subject = self._names.delivery(self._shard, receiver)
        async with self._readers:
            found = await self._page(subject, after, up_to, count_max)
        end = found[-1].position if found else up_to
        if found:
            self.mark = higher_mark(self.mark, Mark(position=end, stored_at=found[-1].stored_at))
        return BacklogPage(events=[stored_event(each) for each in found], complete=end >= up_to)

    async def read_all(self, after: int, up_to: int, count_max: int) -> ShardPage:
        """The next events of all receivers of the shard, including those with impossible names."""
        async with self._readers:
            found = await self._page(self._names.deliveries_of(self._shard), after, up_to, count_max)
        end = found[-1].position if found else up_to
        return ShardPage(events=[self._addressed(each) for each in found], complete=end >= up_to)

    def _addressed(self, message: StoredMessage) -> tuple[str, Event]:
        receiver, event = self._names.receiver_of_delivery(message.subject), stored_event(message)
        problem = receiver_problem(receiver[:RECEIVER_CHECKED_MAX])
        return receiver, replace(event, malformed=problem) if problem else event

    async def event(self, receiver: str, position: int) -> Event | None:
        message = await _answer(message_at(self._js, self._stream, position))
        if message is None or message.subject != self._names.delivery(self._shard, receiver):
            return None
        return stored_event(message)

    async def first_since(self, receiver: str, at: float) -> int | None:
        subject = self._names.delivery(self._shard, receiver)
        asked_at = asyncio.get_running_loop().time()
        message = await _answer(self._js.first_since(self._stream, subject, at))
        if message is None and self._replicated:
            info = await _answer(info_since(self._js, self._stream, asked_at))
            page = await _answer(last_messages(self._js, self._stream, subject, info.last))
            late = page is not None and (
                page.up_to < info.last
                or any(each.stored_at >= at for each in page.messages if each.subject == subject)
            )
            if late:
                raise Unavailable(f"{receiver}: events stored since {at:.3f} are not known for certain")
        return None if message is None else message.position

    async def erase(self, position: int, stored_at: float) -> None:
        pauses, mark = Pauses(self._js), Mark(position=position, stored_at=stored_at)
        while True:
            try:
                await delete_known(self._js, self._stream, mark)
            except (NotPermitted, ApiError) as error:
                raise ControlDenied("not_allowed", f"it cannot be erased: {error}") from error
            except Unavailable:
                await pauses.wait()
            else:
                return

    async def end(self) -> int:
        """A position at or beyond everything that was stored before this call."""
        return (await _answer(info_since(self._js, self._stream, asyncio.get_running_loop().time()))).last

    async def count(self, receiver: str, after: int) -> int:
        subject = self._names.delivery(self._shard, receiver)
        page = await self._js.read(self._stream, subject, after + 1, batch=1, max_bytes=1)
        return len(page.messages) + page.pending

    async def _page(self, subject: str, after: int, up_to: int, count_max: int) -> list[StoredMessage]:
        return await next_messages(
            self._js, self._stream, subject, after, up_to, count_max, replicated=self._replicated
        )


async def next_messages(
    js: JetStream,
    stream: str,
    subject: str,
    after: int,
    up_to: int,
    count_max: int,
    bytes_max: int = PAGE_BYTES_MAX,
    *,
    replicated: bool,
) -> list[StoredMessage]:
    """The next messages above `after`; none if the leader has none up to `up_to`. Raises `Unavailable`."""
    page = await js.read(stream, subject, after + 1, count_max, bytes_max)
    if page.messages or after >= up_to:
        return page.messages
    message = await _answer(js.next_message(stream, subject, after + 1))
    if message is None and replicated:
        await _answer(ensure_no_message(js, stream, subject, after, up_to))
    return [message] if message is not None and message.position <= up_to else []


async def _answer(asked: Awaitable[T]) -> T:
    """Turn a refusal (for example, the stream is missing) into Unavailable: the caller can only ask again."""
    try:
        return await asked
    except ApiError as error:
        raise Unavailable(str(error)) from error
