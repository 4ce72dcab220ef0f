"""A server in memory that can lose what it stored last, like one that loses power."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streams.nats.jetstream import JetStream
from tests.sim.server import FakeServer
from tests.sim.server.client import LoopWire
from tests.sim.server.streams.replica import Replicas


class Powerless:
    """A server that can lose what it stored last, and its clients' connections."""

    def __init__(self) -> None:
        self.server = FakeServer()
        self.wire: LoopWire = self.server.connect("test")
        self.js = JetStream(self.wire)

    def end_of(self, stream: str) -> int:
        return self.server.streams[stream].store.last

    def lose_tail(self, stream: str, kept: int) -> None:
        lost = self.server.streams[stream]
        for sequence in [each for each in lost.store.messages if each > kept]:
            lost.store.remove(sequence)
        lost.store.last = kept
        lost.store.first = min(lost.store.first, kept + 1)
        lost.replicas = Replicas(lost.store)
        self.reconnect()

    def reconnect(self) -> None:
        self.wire.tell(False)
        self.wire.tell(True)


@asynccontextmanager
async def powerless() -> AsyncIterator[Powerless]:
    """Such a server, and a connection to it."""
    nats = Powerless()
    await nats.js.start()
    yield nats
    await nats.js.stop()
    await nats.wire.close()
