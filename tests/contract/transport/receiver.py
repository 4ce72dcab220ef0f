"""A receiver on a real socket that does with each connection exactly what a test tells it to."""

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from angarium.delivery.http_exchange.sockets import has_untaken

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Received(NamedTuple):
    """A request as it came: its first line, its headers in order, its body."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]


class Peer:
    """One connection, seen from the receiver."""

    def __init__(
        self, receiver: "Receiver", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._receiver = receiver
        self._reader = reader
        self._writer = writer

    async def request(self) -> Received:
        """The next request. Raises IncompleteReadError if the connection ends instead."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        line, *lines = head[:-4].split(b"\r\n")
        headers = [(name.lower(), value) for name, _, value in (each.partition(b": ") for each in lines)]
        length = int(dict(headers).get(b"content-length", b"0"))
        received = Received(line, headers, await self._reader.readexactly(length))
        self._receiver.requests.append(received)
        return received

    async def first_byte(self) -> None:
        """Wait for a request to begin, and read no more of it."""
        await self._reader.readexactly(1)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def push(self, data: bytes) -> None:
        """Send bytes and return once they have arrived, while the event loop has had no turn to read them."""
        fd = self._writer.get_extra_info("socket").fileno()
        os.write(fd, data)
        while has_untaken(fd):
            pass

    async def push_record(self, data: bytes) -> None:
        """Writes a record over TLS, and gives the event loop a turn, since uvloop writes at its end."""
        self._writer.write(data)
        await asyncio.sleep(0)
        self.push(b"")

    async def answer(self, data: bytes = OK) -> Received:
        """Take a request and answer it."""
        received = await self.request()
        await self.send(data)
        return received

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def half_close(self) -> None:
        """Say that nothing more will be sent, and go on listening."""
        self._writer.write_eof()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def until_closed(self) -> bytes:
        """All that still comes, once the other side has closed."""
        try:
            return await self._reader.read()
        except ConnectionError:
            return b""


Script = Callable[[Peer], Awaitable[None]]


async def polite(peer: Peer) -> None:
    """Answer every request on the connection."""
    while True:
        await peer.answer()


class Receiver:
    """Listens on loopback and plays its scripts: the n-th connection gets the n-th, later ones the last.

    `reached` holds the address that each connection was made to, `certificates` those of the clients.
    """

    def __init__(self) -> None:
        self.scripts: list[Script] = [polite]
        self.requests: list[Received] = []
        self.reached: list[str] = []
        self.certificates: list[dict[str, Any] | None] = []
        self.open = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        """Counts the connections."""
        return len(self.reached)

    def plays(self, *scripts: Script) -> None:
        self.scripts = list(scripts)

    def answers(self, data: bytes) -> None:
        """Answer every request with these bytes, then close."""

        async def script(peer: Peer) -> None:
            await peer.answer(data)

        self.plays(script)

    async def start(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; on every address of the machine where `host` is empty."""
        both = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        listening = socket.create_server((host, port), family=family, dualstack_ipv6=both)
        self._server = await asyncio.start_server(self._accept, sock=listening, ssl=tls, limit=1 << 20)
        self.port = listening.getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the connection, and close it in any case, even if the test ends before it was read."""
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self.scripts[min(self.connections, len(self.scripts) - 1)]
        self.reached.append(writer.get_extra_info("sockname")[0])
        self.certificates.append(writer.get_extra_info("peercert"))
        self.open += 1
        try:
            await script(Peer(self, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # The other side went away, or the test is over: either way the connection ends here.
        finally:
            self.open -= 1
