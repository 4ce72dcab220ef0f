"""The two servers that the same tests run on: the one in memory, and the real nats-server."""

from typing import Protocol

from streams.nats.connection import ConnectOptions, connect
from streams.nats.wire import Wire
from tests.sim.server import FakeServer


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
