"""The two servers that the same tests run on: the one in memory, and the real nats-server."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.sim.server import FakeServer

J = TypeVar("J", bound=JetStream)


class Server(Protocol):
    async def connect(self, name: str) -> Wire: ...


class RealServer:
    def __init__(self, url: str) -> None:
        self._url = url

    async def connect(self, name: str) -> Wire:
        return await connect(ConnectOptions(servers=(self._url,), name=name))


class MemoryServer:
    def __init__(self) -> None:
        self._server = FakeServer()

    async def connect(self, name: str) -> Wire:
        return self._server.connect(name)


@asynccontextmanager
async def opened(server: Server, kind: Callable[[Wire], J], name: str = "another") -> AsyncIterator[J]:
    """A JetStream of that kind, over a connection of its own."""
    wire = await server.connect(name)
    js = kind(wire)
    await js.start()
    yield js
    await js.stop()
    await wire.close()
