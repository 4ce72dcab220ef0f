"""The base of every bench: a sink, a server that is set up, and a connection to it."""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct

from angarium.access import installation, open_jetstream
from angarium.bench.sink_process import SinkProcess, running_sink
from angarium.development.local_node import LocalNode
from angarium.settings import Settings
from streams.installation.setup import setup
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.server.embedded import EmbeddedServer

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""Signs for all receivers of a bench."""

SHARDS = Settings().shards
"""The number of shards of an installation by default."""


class Harness(Struct, frozen=True):
    """The server, the sink and the connection of one bench; `directory` is for files that it writes."""

    directory: Path
    url: str
    js: JetStream
    sink: SinkProcess
    shards: int

    @property
    def server_pid(self) -> int:
        """The pid of nats-server."""
        return int((self.directory / "nats" / "nats-server.pid").read_text())

    def node(self, *python: str, name: str = "node") -> LocalNode:
        """A node that is not started yet; see `LocalNode` for `python`."""
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        return LocalNode(directory, {"nats": [self.url], "shards": self.shards}, python)


P = TypeVar("P")


class Bench(Generic[P]):
    """A bench on its harness, by a plan; `on_step` is called with each step."""

    def __init__(self, plan: P, harness: Harness, on_step: Callable[[str], None] = lambda _: None) -> None:
        self._plan = plan
        self._harness = harness
        self._js = harness.js
        self._sink = harness.sink
        self._shards = harness.shards
        self._names = Names()
        self._on_step = on_step


@asynccontextmanager
async def harness(shards: int = SHARDS) -> AsyncIterator[Harness]:
    """Sets up the base for one run, and leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="angarium-bench-") as name:
        directory = Path(name)
        async with running_sink() as sink, EmbeddedServer(directory / "nats", port=0) as server:
            settings = Settings(nats=(server.url,), shards=shards)
            async with open_jetstream(settings) as js:
                await setup(js, installation(settings))
                yield Harness(directory, server.url, js, sink, shards)
