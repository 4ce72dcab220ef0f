"""JetStream over a `Wire`: publishing, reading and the management API, with nothing that can hang.

nats-py's own JetStream is not used: its `publish_async` leaves futures that never end after an error or a
lost connection, and it reports "refused" and "unknown" by the same exceptions. Here every request ends
(`streams.nats.replies`), and an unknown outcome is reported as unknown.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from itertools import count
from typing import Any, TypeVar

import msgspec

from actors.errors import Unavailable
from streams.nats.answers import (
    Answer,
    ConsumerInfo,
    Forbidden,
    NoResponders,
    Page,
    Put,
    Refused,
    StoredMessage,
    StreamInfo,
    Unanswered,
)
from streams.nats.errors import ApiError, Disconnected, NotPermitted, not_offered
from streams.nats.gathered_log import GatheredLog
from streams.nats.protocol import (
    ApiReply,
    ConsumerListReply,
    ConsumerReply,
    MessageReply,
    PurgeReply,
    SharedHeaders,
    StreamReply,
    consumer_info,
    is_page_part,
    page,
    publish_answer,
    rfc3339,
    stored_message,
    stream_info,
)
from streams.nats.replies import Replies, is_no_responders
from streams.nats.wire import Message, Wire
from streams.nats.wire_names import (
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQUENCE,
    CONSUMER_NOT_FOUND,
    MESSAGE_NOT_FOUND,
    MESSAGE_TOO_LARGE,
    STREAM_NOT_FOUND,
)

ALL_SUBJECTS = ">"
BATCH_MAX = 1000
"""Largest number of messages in an atomic batch (ADR-50)."""

_API = "$JS.API."
_API_INFO = "$JS.API.INFO"
API_TIMEOUT_S = 5.0
CREATE_TIMEOUT_S = 30.0
"""Time to create a stream: in a cluster that has just started, electing leaders may take 9 s."""
_REPEATABLE = (
    "STREAM.INFO.",
    "STREAM.CREATE.",
    "STREAM.MSG.GET.",
    "CONSUMER.INFO.",
    "CONSUMER.LIST.",
    "CONSUMER.CREATE.",
)
"""Requests that do no more when they come twice."""

DISTURBED_FOR_S = 5.0
"""Time after a new connection in which failures may still come from the lost one."""

R = TypeVar("R", bound=ApiReply)
T = TypeVar("T")

SENT_IN_A_ROW = 32
"""Messages of a batch that are sent before other work has a turn; they take half a millisecond."""


class JetStream:
    """JetStream over one connection.

    `for_command`: a person waits, so a request that is not permitted is not to be repeated (`NotPermitted`).
    """

    def __init__(self, wire: Wire, *, for_command: bool = False) -> None:
        self.wire = wire
        self.for_command = for_command
        self.connection_changes = 0  # How often the connection was lost or restored.
        self._replies = Replies(wire)
        self._batches = count(1)
        self._listeners: list[Callable[[bool], None]] = []
        self._back = asyncio.Event()
        self._calm_from = 0.0
        self.gathered_log = GatheredLog(lambda: self.is_disturbed)
        wire.on_change(self.connection_changed)

    async def start(self) -> None:
        """Subscribe to the answers. To be called once, before anything else."""
        await self._replies.start()
        self._batch_prefix = self.wire.new_inbox().rpartition(".")[2]

    async def stop(self) -> None:
        """Drop the subscription; open requests end as unanswered. The wire stays open."""
        self.gathered_log.flush()
        await self._replies.stop()

    def add_listener(self, listener: Callable[[bool], None]) -> None:
        """Tell `listener` False when the connection is lost, True when there is a new one."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[bool], None]) -> None:
        """Remove a listener. The wire has no such method: its own listeners stay forever."""
        self._listeners.remove(listener)

    async def unless_forbidden(self, work: Coroutine[Any, Any, T]) -> T:
        """Do a command's work, and raise `NotPermitted` as soon as NATS forbids one of its requests.

        A node asks again, since an operator may grant the permission meanwhile. But a person waits for a
        command.
        """
        task, forbidden = asyncio.ensure_future(work), list[Forbidden]()

        def end(answer: Forbidden) -> None:
            forbidden.append(answer)
            task.cancel()

        self._replies.on_forbidden = end
        try:
            await asyncio.wait({task})
        finally:
            self._replies.on_forbidden = None
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if forbidden and task.cancelled():
            raise NotPermitted(forbidden[0].why)
        return task.result()

    @property
    def is_disturbed(self) -> bool:
        """True if NATS is away or has just returned, which explains failures."""
        return not self.wire.is_connected or asyncio.get_running_loop().time() < self._calm_from

    async def reconnected(self, within_s: float) -> bool:
        """Wait up to `within_s` for a new connection; returns True as soon as there is one."""
        try:
            async with asyncio.timeout(within_s):
                await self._back.wait()
        except TimeoutError:
            return False
        return True

    def connection_changed(self, connected: bool) -> None:
        """Note that the connection was lost or came back, and tell all listeners; the wire calls it."""
        self.connection_changes += 1
        if connected:
            self._calm_from = asyncio.get_running_loop().time() + DISTURBED_FOR_S
            self._back.set()
            self._back = asyncio.Event()
        else:
            self._replies.end_all("the connection to NATS was lost")
        for listener in list(self._listeners):
            listener(connected)

    async def publish(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None, timeout_s: float = 2.0
    ) -> Answer:
        """Store one message. Returns `Unanswered` at once if the connection is lost before or meanwhile.

        A message larger than the server's limit is refused here, since the server would close the connection.
        """
        if _size(data, headers) > self.wire.max_payload:
            return Refused(MESSAGE_TOO_LARGE, "message size exceeds the server's max_payload")
        answer = await self._replies.ask(subject, data, headers, timeout_s)
        return answer if isinstance(answer, Unanswered) else publish_answer(answer)

    def begin_publish(self, put: Put, answered: Callable[[Answer], None], timeout_s: float = 2.0) -> None:
        """Store one message without waiting for room in the connection: look at `wire.unsent` before.

        `answered` is called once, as `publish` returns, and may be called before this returns. It must
        neither block nor raise.
        """
        if _size(put.data, put.headers) > self.wire.max_payload:
            answered(Refused(MESSAGE_TOO_LARGE, "message size exceeds the server's max_payload"))
            return

        def end(answer: Message | Unanswered) -> None:
            answered(answer if isinstance(answer, Unanswered) else publish_answer(answer))

        self._replies.begin(put, timeout_s, end)

    async def publish_all(self, puts: Sequence[Put], timeout_s: float = 2.0) -> list[Answer]:
        """Store messages in their order, handed over in one piece, and each answered for itself.

        It never waits to hand them over: look at `wire.unsent` before.
        """
        refused = Refused(MESSAGE_TOO_LARGE, "message size exceeds the server's max_payload")
        fit = [_size(put.data, put.headers) <= self.wire.max_payload for put in puts]
        sendable = [put for put, fits in zip(puts, fit, strict=True) if fits]
        replies = iter(await self._replies.ask_all(sendable, timeout_s) if sendable else ())
        answers = (next(replies) if fits else None for fits in fit)
        return [
            refused if each is None else each if isinstance(each, Unanswered) else publish_answer(each)
            for each in answers
        ]

    async def publish_batch(self, puts: Sequence[Put], timeout_s: float = 5.0) -> Answer:
        """Store 1 to 1,000 messages of one stream, all or nothing (ADR-50); the stream must allow this.

        Expectations in the headers of any of them hold for the whole batch. The answer contains the position
        of the last message.
        """
        if not 1 <= len(puts) <= BATCH_MAX:
            raise ValueError(f"a batch has 1 to {BATCH_MAX} messages, not {len(puts)}")
        if any(_size(put.data, put.headers) > self.wire.max_payload for put in puts):
            return Refused(MESSAGE_TOO_LARGE, "message size exceeds the server's max_payload")
        if not self.wire.is_connected:
            return Unanswered("not connected to NATS")
        batch = f"{self._batch_prefix}-{next(self._batches)}"
        try:
            for number, put in enumerate(puts[:-1], 1):
                await self.wire.publish(put.subject, put.data, headers=_in_batch(put, batch, number))
                if number % SENT_IN_A_ROW == 0:
                    await asyncio.sleep(0)
        except Disconnected as error:
            return Unanswered(str(error))
        last = _in_batch(puts[-1], batch, len(puts)) | {BATCH_COMMIT: "1"}
        answer = await self._replies.ask(puts[-1].subject, puts[-1].data, last, timeout_s)
        return answer if isinstance(answer, Unanswered) else publish_answer(answer)

    async def last_message(self, stream: str, subject: str) -> StoredMessage | None:
        """The newest message of `subject` (may be a wildcard), from the leader."""
        return await self._message(stream, {"last_by_subj": subject})

    async def next_message(self, stream: str, subject: str, position: int) -> StoredMessage | None:
        """The first message of `subject` (may be a wildcard) at or after `position`, from the leader."""
        return await self._message(stream, {"seq": max(position, 1), "next_by_subj": subject})

    async def first_since(self, stream: str, subject: str, at: float) -> StoredMessage | None:
        """The first message of `subject` that was stored at the time `at` or later, from the leader.

        If messages are microseconds apart, it may be one that was stored just before.
        """
        return await self._message(stream, {"next_by_subj": subject, "start_time": rfc3339(at)})

    async def message(self, stream: str, position: int) -> StoredMessage | None:
        """The message at `position`, from the leader."""
        return await self._message(stream, {"seq": position})

    async def delete(self, stream: str, position: int) -> bool:
        """Delete the message at `position` and overwrite it on disk; returns False if there was none.

        The server has one code for "there is none" and "not allowed", so a second request is needed.
        """
        try:
            await self._api(f"STREAM.MSG.DELETE.{stream}", {"seq": position}, ApiReply)
        except ApiError:
            if await self.message(stream, position) is not None:
                raise
            return False
        return True

    async def _message(self, stream: str, which: dict[str, Any]) -> StoredMessage | None:
        reply = await self._find(f"STREAM.MSG.GET.{stream}", which, MessageReply, MESSAGE_NOT_FOUND)
        return None if reply is None or reply.message is None else stored_message(reply.message)

    async def read(
        self,
        stream: str,
        subject: str,
        position: int,
        batch: int = 256,
        max_bytes: int = 4 << 20,
        timeout_s: float = 5.0,
    ) -> Page:
        """Messages of `subject` (may be a wildcard) from `position` on, from any replica (ADR-31).

        At most `batch` of them, and about `max_bytes`. A replica may lag, so its end need not be the end of
        the stream. Raises `Unavailable`, also if the stream has no direct get.
        """
        which = {"seq": max(position, 1), "next_by_subj": subject, "batch": batch, "max_bytes": max_bytes}
        return await self._direct(stream, which, timeout_s, f"from {position}")

    async def last_of(self, stream: str, subjects: Sequence[str], timeout_s: float = 5.0) -> Page:
        """The newest message of each subject that has one, all from the same replica.

        `up_to` says how far that replica has the stream, unless it has no message at all. Raises like `read`.
        """
        return await self._direct(stream, {"multi_last": list(subjects)}, timeout_s, "its last messages")

    async def _direct(self, stream: str, which: dict[str, Any], timeout_s: float, what: str) -> Page:
        subject, data = f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode(which)
        parts = await self._replies.ask_parts(subject, data, None, timeout_s, is_page_part)
        if self.for_command and _not_heard(parts) and await self._has_readers(stream):
            # A replica may have begun to answer meanwhile, but not for an account without the subject.
            parts = await self._replies.ask_parts(subject, data, None, timeout_s, is_page_part)
            if _not_heard(parts):
                raise not_offered(subject)
        answer = parts if isinstance(parts, Unanswered) else page(parts)
        if isinstance(answer, Unanswered):
            raise self._unavailable(f"cannot read {stream} {what}", answer)
        return answer

    async def _has_readers(self, stream: str) -> bool:
        """True if the stream has a leader, and its replicas answer direct gets."""
        try:
            info = await self.stream_info(stream)
        except (Unavailable, ApiError):
            return False
        return info is not None and bool(info.config.get("allow_direct"))

    async def subjects(self, stream: str, subject: str) -> dict[str, int]:
        """The subjects that match, and how many messages each has, from the leader.

        Raises `Unavailable`, and `ApiError` if there is no such stream.
        """
        found: dict[str, int] = {}
        async for reply in self._subject_pages(stream, subject):
            found |= reply.state.subjects or {}
        return found

    async def subjects_and_info(self, stream: str, subject: str) -> tuple[list[str], StreamInfo]:
        """The complete list of the subjects that match, and the state of their stream.

        Raises like `subjects`; also raises `Unavailable` if there are several pages and a purge came in
        between, since then some remaining subjects may be on no page.
        """
        found: dict[str, int] = {}
        infos: list[StreamInfo] = []
        async for reply in self._subject_pages(stream, subject):
            found |= reply.state.subjects or {}
            infos.append(stream_info(reply))
        if any(each.first != infos[0].first for each in infos):
            raise Unavailable(f"{stream} was purged while its subjects were listed")
        return list(found), infos[0]

    async def _subject_pages(self, stream: str, subject: str) -> AsyncIterator[StreamReply]:
        count = 0
        while True:
            body = {"subjects_filter": subject, "offset": count}
            reply = await self._api(f"STREAM.INFO.{stream}", body, StreamReply)
            yield reply
            listed = len(reply.state.subjects or {})
            count += listed
            if not listed or count >= reply.total:
                return

    async def stream_info(self, stream: str) -> StreamInfo | None:
        reply = await self._find(f"STREAM.INFO.{stream}", None, StreamReply, STREAM_NOT_FOUND)
        return None if reply is None else stream_info(reply)

    async def existing_stream(self, stream: str) -> StreamInfo:
        """The state of a stream that must exist. Raises `ApiError` if it does not."""
        info = await self.stream_info(stream)
        if info is None:
            raise ApiError(STREAM_NOT_FOUND, f"stream {stream} not found")
        return info

    async def stream_create(self, config: dict[str, Any]) -> StreamInfo:
        """Create a stream; repeating it changes nothing, another configuration raises `ApiError` 10058."""
        operation = f"STREAM.CREATE.{config['name']}"
        return stream_info(await self._api(operation, config, StreamReply, CREATE_TIMEOUT_S))

    async def stream_update(self, config: dict[str, Any]) -> StreamInfo:
        return stream_info(await self._api(f"STREAM.UPDATE.{config['name']}", config, StreamReply))

    async def purge(self, stream: str, up_to: int) -> int:
        """Delete all messages below the position `up_to`; returns how many.

        Nothing is below the first position, but nats-server 2.14.1 and older would delete everything then.
        """
        if up_to <= 1:
            return 0
        return (await self._api(f"STREAM.PURGE.{stream}", {"seq": up_to}, PurgeReply)).purged

    async def purge_subject(self, stream: str, subject: str, last: int | None = None) -> int:
        """Delete the messages of one subject, all or those up to `last`; returns how many."""
        body: dict[str, Any] = {"filter": subject} | ({} if last is None else {"seq": last + 1})
        return (await self._api(f"STREAM.PURGE.{stream}", body, PurgeReply)).purged

    async def consumer_info(self, stream: str, consumer: str) -> ConsumerInfo | None:
        operation = f"CONSUMER.INFO.{stream}.{consumer}"
        reply = await self._find(operation, None, ConsumerReply, CONSUMER_NOT_FOUND)
        return None if reply is None else consumer_info(reply)

    async def consumer_create(
        self, stream: str, config: dict[str, Any], timeout_s: float = API_TIMEOUT_S
    ) -> ConsumerInfo:
        """Create a consumer; repeating it changes nothing, another configuration raises `ApiError` 10148."""
        body = {"stream_name": stream, "config": config, "action": "create"}
        operation = f"CONSUMER.CREATE.{stream}.{config['name']}"
        return consumer_info(await self._api(operation, body, ConsumerReply, timeout_s))

    def consumer_delete(self, stream: str, consumer: str) -> None:
        """Ask to delete a consumer, and wait for nothing. Call this only while connected."""
        put = Put(f"$JS.API.CONSUMER.DELETE.{stream}.{consumer}", b"")
        self.wire.send((put,), (self.wire.new_inbox(),))

    async def consumer_deleted(self, stream: str, consumer: str) -> None:
        """Delete a consumer, which may be gone already. Raises `Unavailable` and `ApiError`."""
        await self._find(f"CONSUMER.DELETE.{stream}.{consumer}", None, ApiReply, CONSUMER_NOT_FOUND)

    async def consumers(self, stream: str) -> list[ConsumerInfo]:
        """All consumers of the stream. Raises `Unavailable`, and `ApiError` if there is no such stream."""
        found: list[ConsumerInfo] = []
        while True:
            operation, body = f"CONSUMER.LIST.{stream}", {"offset": len(found)}
            reply = await self._api(operation, body, ConsumerListReply)
            found += map(consumer_info, reply.consumers or ())
            if not reply.consumers or len(found) >= reply.total:
                return found

    async def check(self) -> None:
        """Raise `Unavailable` if JetStream is disabled for our account."""
        await self._api("INFO", None, ApiReply)

    async def request(
        self,
        subject: str,
        data: bytes,
        timeout_s: float = 2.0,
        headers: dict[str, str] | None = None,
        *,
        repeat: bool = False,
    ) -> Message:
        """Ask and wait for one answer. Raises `Unavailable`.

        With `repeat`, the request is sent again as long as there is no answer.
        """
        answer = await self._replies.ask(subject, data, headers, timeout_s, repeat=repeat)
        if isinstance(answer, NoResponders) and await self._is_hidden(subject):
            raise not_offered(subject)
        if isinstance(answer, Unanswered):
            raise self._unavailable(subject, answer)
        return answer

    async def _is_hidden(self, subject: str) -> bool:
        """True if our account imports a part of JetStream's API, and not this subject of it."""
        if not self.for_command or not subject.startswith(_API) or subject == _API_INFO:
            return False
        return not isinstance(await self._replies.ask(_API_INFO, b"", None, API_TIMEOUT_S), Unanswered)

    def _unavailable(self, what: str, answer: Unanswered) -> Unavailable:
        if isinstance(answer, Forbidden):
            return NotPermitted(answer.why, final=self.for_command)
        return Unavailable(f"{what}: {answer.why}")

    async def _api(self, operation: str, body: object, kind: type[R], timeout_s: float = API_TIMEOUT_S) -> R:
        data = b"" if body is None else msgspec.json.encode(body)
        repeat = operation.startswith(_REPEATABLE)
        message = await self.request(f"{_API}{operation}", data, timeout_s, repeat=repeat)
        try:
            reply = msgspec.json.decode(message.data, type=kind)
        except msgspec.DecodeError as error:
            raise Unavailable(f"{operation}: the answer is not JetStream's ({error})") from error
        if reply.error is None:
            return reply
        if reply.error.code == 503:
            raise Unavailable(f"{operation}: {reply.error.description}")
        raise ApiError(reply.error.err_code, reply.error.description)

    async def _find(self, operation: str, body: object, kind: type[R], not_found: int) -> R | None:
        try:
            return await self._api(operation, body, kind)
        except ApiError as error:
            if error.code != not_found:
                raise
            return None


def _not_heard(parts: list[Message] | Unanswered) -> bool:
    return not isinstance(parts, Unanswered) and is_no_responders(parts[-1])


def _size(data: bytes, headers: dict[str, str] | None) -> int:
    """The payload as the server counts it: `NATS/1.0`, lines `name: value`, an empty line, the data."""
    if not headers:
        return len(data)
    if isinstance(headers, SharedHeaders):
        return len(data) + len(headers.block)
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return len(data) + 12 + len(lines.encode())


def _in_batch(put: Put, batch: str, number: int) -> dict[str, str]:
    return {**(put.headers or {}), BATCH_ID: batch, BATCH_SEQUENCE: str(number)}
