"""nats-py's client, with the few changes that Angarium needs; each says why.

Messages go from the socket straight to the handlers of `listen`. nats-py would put each message into a queue,
from which a task of the subscription takes it, and its parser tries one pattern after the other: a pulled
message reaches the handler after 4.2 µs, instead of 2.2 µs.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import nats.errors
from nats.aio.client import Client, Srv
from nats.aio.subscription import Subscription
from nats.protocol.parser import AWAITING_MSG_PAYLOAD, CRLF_SIZE, Parser

from streams.nats.answers import Put
from streams.nats.protocol import header_block, parse_block
from streams.nats.wire import Message

log = logging.getLogger(__name__)

CLOSE_MAX_S = 2.0
"""Time for a server to read the buffer of a connection that is closed."""

Handler = Callable[[Message], None]


class NatsClient(Client):
    """A client of nats-py; with `wants_tls` it never uses an unencrypted connection.

    Headers are read as everywhere in Angarium, so that a message always has the same ones. The server accepts
    a producer's block of headers unchecked, and it must not hide the headers that the server adds.
    """

    def __init__(self, *, wants_tls: bool) -> None:
        super().__init__()
        self._wants_tls = wants_tls
        self._handlers: dict[int, Handler] = {}
        self._handlers_without_headers: dict[int, Handler] = {}
        self._ps = _Parser(self)

    async def listen(self, subject: str, handler: Handler, *, headers: bool = True) -> Subscription:
        """Subscribe; `handler` gets each message as it is read, and must neither block nor raise."""
        number = self._sid + 1
        (self._handlers if headers else self._handlers_without_headers)[number] = handler
        return await self.subscribe(subject)

    async def publish_each(self, subjects: Sequence[str], data: bytes) -> None:
        """Publish the same data to each subject in one write: 0.1 µs for each; `publish` takes 1.3 µs."""
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        if not self.is_connected:
            raise nats.errors.OutboundBufferLimitError
        end = b" %d\r\n%b\r\n" % (len(data), data)
        await self._send_command(b"".join([b"PUB " + subject.encode() + end for subject in subjects]))
        await self._flush_pending()

    @property
    def unsent(self) -> int:
        """Bytes that wait here and in the transport."""
        writer = getattr(self._transport, "_io_writer", None)
        waiting = 0 if writer is None else writer.transport.get_write_buffer_size()
        return int(self._pending_data_size + waiting)

    def send(self, puts: Sequence[Put], replies: Sequence[str]) -> None:
        """Publish several messages in one piece: 2.2 µs for each, where `publish` takes 3.8 and may wait.

        It takes what `publish` takes, and raises the same.
        """
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        if not self.is_connected:
            raise nats.errors.OutboundBufferLimitError
        self._buffer(
            b"".join(
                _command(put.subject, reply, put.headers, put.data)
                for put, reply in zip(puts, replies, strict=True)
            )
        )

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Publish a message: 3.8 µs with four headers, where nats-py takes 9 and makes 40 calls.

        Leaves to nats-py what it does seldom: it keeps messages while there is no connection, refuses what
        cannot be sent, and replaces ends of lines in headers.
        """
        if self._status == Client.CONNECTED and len(payload) <= self._max_payload:
            try:
                command = _command(subject, reply, headers, payload)
            except (nats.errors.BadSubjectError, ValueError):
                pass
            else:
                self._buffer(command)
                if self._pending_data_size > self._max_pending_size > 0:
                    await self._flush_pending(force_flush=True)
                return
        await super().publish(subject, payload, reply, headers)

    def _buffer(self, commands: bytes) -> None:
        """Let the flusher send this."""
        self._pending.append(commands)
        self._pending_data_size += len(commands)
        if self._flush_queue is not None and self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())

    def hand_over(
        self, number: int, subject: bytes, reply: bytes, headers: bytes, data: bytes, payload: int
    ) -> None:
        """Give a message to its listener. In a subject that is not UTF-8, bytes appear as `\\xff`.

        Headers that the listener does not want are only counted: `payload` is the size of headers and data.
        """
        handler = self._handlers.get(number)
        if handler is None:
            handler = self._handlers_without_headers.get(number)
            if handler is None:
                return
            headers = b""
        message = Message(
            subject.decode(errors="backslashreplace"),
            data,
            reply.decode(errors="backslashreplace"),
            parse_block(headers, appended=not reply) if headers else None,
            payload + len(subject + reply),
        )
        try:
            handler(message)
        except Exception as error:
            report = {"message": f"a handler of {message.subject} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(report)

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        super()._remove_sub(sid, max_msgs)
        self._handlers.pop(sid, None)
        self._handlers_without_headers.pop(sid, None)

    def abandon(self) -> None:
        """Leave the server at once. If closing is interrupted, nats-py believes that it has finished."""
        for writer in (getattr(self._transport, name, None) for name in ("_io_writer", "_bare_io_writer")):
            if writer is not None:
                writer.transport.abort()

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        """Take a message that nats-py's parser has read; `headers` is None if there are none."""
        headers = headers or b""
        self.hand_over(sid, subject, reply, headers, data, len(headers) + len(data))

    async def _attempt_reconnect(self) -> None:
        """Give up and report it where nats-py would end silently: it does not expect an unusable key.

        A key file may just be being written. A client that gives up is replaced (`streams.nats.connection`).
        The old connection is not closed in order: if its server does not read, the kernel gives up after a
        quarter of an hour.
        """
        self.abandon()
        try:
            await super()._attempt_reconnect()
        except Exception as error:
            await self._error_cb(error)
            await self.close()

    async def _connect_to_server(self, srv: Srv) -> None:
        """Close the attempt before this one: nats-py leaves it open if the server said nothing."""
        self.abandon()
        await super()._connect_to_server(srv)

    async def _flush_pending(self, force_flush: bool = False) -> None:
        """Flush without failing if the connection has just broken, which nats-py notices a moment later.

        Its flusher has ended by then, so it writes here, and uvloop raises RuntimeError or asyncio an
        OSError. Its reading loop is about to reconnect, with all subscriptions that exist then.
        """
        try:
            await super()._flush_pending(force_flush)
        except (OSError, RuntimeError) as error:
            log.debug("NATS: %s", error)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """Close even if buffered data cannot be sent; nats-py would end silently then, or not at all."""
        late = asyncio.get_running_loop().call_later(CLOSE_MAX_S, self.abandon)
        try:
            await super()._close(status, do_cbs)
        except (OSError, RuntimeError) as error:
            log.debug("NATS: %s", error)
            self._pending.clear()
            self._pending_data_size = 0
            self._status = Client.DISCONNECTED
            await super()._close(status, do_cbs)
        finally:
            late.cancel()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Require TLS before nats-py sends anything; by itself it upgrades only if the server requires it."""
        if initial_connection and self._wants_tls and not info.get("tls_required"):
            raise nats.errors.SecureConnRequiredError
        await super()._process_info(info, initial_connection)


def _command(subject: str, reply: str, headers: dict[str, str] | None, data: bytes) -> bytes:
    """A message as the server takes it.

    Raises BadSubjectError for a subject that it would not take as one, and ValueError for such a header.
    """
    where = f"{subject} {reply}" if reply else subject
    if not (subject and where.isprintable() and where.count(" ") == bool(reply)):
        raise nats.errors.BadSubjectError
    if headers is None:
        return b"PUB %b %d\r\n%b\r\n" % (where.encode(), len(data), data)
    block = header_block(headers)
    sizes = len(block), len(block) + len(data)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (where.encode(), *sizes, block, data)


class _Parser(Parser):
    """Parses whole messages, and leaves partial ones and everything else that a server sends to nats-py.

    A subject may contain any byte but blank, tab, CR and LF. nats-py's own patterns take \\v and \\f for
    blanks, and a message that does not match them makes it stop reading silently.
    https://docs.nats.io/reference/reference-protocols/nats-protocol
    """

    def __init__(self, client: NatsClient) -> None:
        super().__init__(client)
        self._client = client

    async def parse(self, data: bytes = b"") -> None:
        if self.state == AWAITING_MSG_PAYLOAD:
            missing = self.needed + CRLF_SIZE - len(self.buf)
            await super().parse(data[:missing])
            data = data[missing:]
        elif self.buf:
            data = bytes(self.buf) + data
            self.buf.clear()
        while data:
            data = data[self._messages(data) :]
            line_end = data.find(b"\r\n") + CRLF_SIZE
            if self.state == AWAITING_MSG_PAYLOAD or line_end < CRLF_SIZE:
                self.buf += data
                return
            await super().parse(data[:line_end])
            data = data[line_end:]

    def _messages(self, data: bytes) -> int:
        """Hand over the complete messages at the beginning of `data`; returns where the last one ends."""
        at, data_end, hand_over = 0, len(data), self._client.hand_over
        while data[at : at + 5] == b"HMSG " or data[at : at + 4] == b"MSG ":
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                break
            head_size = 0
            try:
                verb, subject, number, *middle, size = data[at:line_end].split(b" ")
                if verb == b"HMSG":
                    *middle, head = middle
                    head_size = int(head)
                listener, whole_size = int(number), int(size)
            except ValueError:
                raise nats.errors.ProtocolError from None  # This makes nats-py reconnect.
            reply = middle[0] if middle else b""
            start = line_end + CRLF_SIZE
            end = start + whole_size
            if end + CRLF_SIZE > data_end:
                self.msg_arg = {"subject": subject, "sid": listener, "reply": reply}
                self.needed, self.header_needed = whole_size, head_size
                self.state = AWAITING_MSG_PAYLOAD
                return start
            head_end = start + head_size
            hand_over(listener, subject, reply, data[start:head_end], data[head_end:end], whole_size)
            at = end + CRLF_SIZE
        return at
