"""A client for the monitor of one worker, over a socket that only it and the supervisor have.

Answers come in the order of the requests. A page that is asked for while its answer is awaited is not asked
for again, so a worker that hangs gets at most one question of each kind.
"""

import asyncio
import socket
from typing import cast

import httptools

from angarium.http_server import Reply


class MonitorClient(asyncio.Protocol):
    """The client. The parser calls the methods whose names begin with `on_`.

    `has_answered`: the worker has answered, so it has read its settings, and found its installation right.
    """

    def __init__(self) -> None:
        self.has_answered = False
        self._parser = httptools.HttpResponseParser(self)
        self._asked: dict[str, asyncio.Future[Reply | None]] = {}
        self._transport: asyncio.Transport | None = None
        self._body: list[bytes] = []

    @classmethod
    async def over(cls, connected: socket.socket) -> "MonitorClient":
        """Ask over a connected socket, which is closed by `close`."""
        _, client = await asyncio.get_running_loop().create_connection(cls, sock=connected)
        return client

    def close(self) -> None:
        """Ask no more; what was asked gets no answer."""
        if self._transport is not None:
            self._transport.close()
        self._end()

    async def ask(self, path: str, within_s: float | None) -> Reply | None:
        """The answer to GET; None if it does not come in time, or the worker ends."""
        answer = self._asked.get(path)
        if answer is None:
            if self._transport is None:
                return None
            answer = self._asked[path] = asyncio.get_running_loop().create_future()
            self._transport.write(f"GET {path} HTTP/1.1\r\nhost: worker\r\n\r\n".encode())
        done, _ = await asyncio.wait((answer,), timeout=within_s)
        return answer.result() if done else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it.

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body = []

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        self.has_answered = True
        path = next(iter(self._asked))
        self._asked.pop(path).set_result(Reply(self._parser.get_status_code(), body=b"".join(self._body)))

    def _end(self) -> None:
        self._transport = None
        for answer in self._asked.values():
            answer.set_result(None)
        self._asked.clear()
