"""A proxy on a real socket that does with each CONNECT exactly what a test tells it to."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Client:
    """One connection to the proxy, seen from it. `head` is the CONNECT, once it has come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = b""

    async def asked(self) -> str:
        """The host and port that are asked for, `host:port`."""
        self.head = await self.reader.readuntil(b"\r\n\r\n")
        return self.head.split(b" ", 2)[1].decode()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def lead_to(self, port: int, host: str = "127.0.0.1") -> None:
        """Pass on what comes in both directions, until either side closes."""
        reader, writer = await asyncio.open_connection(host, port)
        try:
            _, pending = await asyncio.wait(
                {
                    asyncio.ensure_future(_copy(self.reader, writer)),
                    asyncio.ensure_future(_copy(reader, self.writer)),
                },
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in pending:
                task.cancel()
        finally:
            writer.close()

    async def until_closed(self) -> None:
        with suppress(ConnectionError):
            await self.reader.read()


Script = Callable[[Client], Awaitable[None]]


async def honest(client: Client) -> None:
    """Open each tunnel, to the port that was asked for, on this machine."""
    authority = await client.asked()
    await client.send(OPENED)
    await client.lead_to(int(authority.rpartition(":")[2]))


def answering(data: bytes) -> Script:
    """Answer each CONNECT with these bytes."""

    async def script(client: Client) -> None:
        await client.asked()
        await client.send(data)
        await client.until_closed()

    return script


class TestProxy:
    """Listens on loopback and plays its script on each connection.

    `heads`: what came; `authorities`: the hosts and ports that were asked for; `open`: connections.
    """

    __test__ = False

    def __init__(self) -> None:
        self.script: Script = honest
        self.clients: list[Client] = []
        self.open = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def heads(self) -> list[bytes]:
        return [each.head for each in self.clients if each.head]

    @property
    def authorities(self) -> list[str]:
        return [head.split(b" ", 2)[1].decode() for head in self.heads]

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(reader, writer)
        self.clients.append(client)
        self.open += 1
        try:
            await self.script(client)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # The other side went away, or the test is over: either way the connection ends here.
        finally:
            self.open -= 1


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
