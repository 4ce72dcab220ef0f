"""A TCP proxy in front of a server, which a test can cut: no byte arrives, but connections stay open."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
CHUNK = 1 << 16


class Proxy:
    """`async with Proxy(port) as proxy: proxy.port`; forwards to `port` unless it is cut."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """The URL of a nats-server behind it."""
        return f"nats://{HOST}:{self.port}"

    def cut(self) -> None:
        """Hold back all bytes, in both directions, and the greeting of new connections."""
        self._open.clear()

    def mend(self) -> None:
        """Deliver what was held back, and everything from now on."""
        self._open.set()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward in a task of our own: one of the server's leaves a connection open if it never begins."""
        task = asyncio.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there, back = await asyncio.open_connection(HOST, self._to)
            try:
                await asyncio.wait(
                    [
                        asyncio.create_task(self._copy(reader, back)),
                        asyncio.create_task(self._copy(there, writer)),
                    ],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                back.close()

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
