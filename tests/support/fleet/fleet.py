"""A whole installation of real processes: nats-server, any number of nodes, receivers that record.

Tests wait for conditions only. While they wait, a node that ended by itself fails them at once.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from actors.errors import Unavailable
from angarium.settings import REPLICATED_TTL_S
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.partitions import shard_of
from streams.installation.setup import setup
from streams.installation.topology import Installation, Names
from streams.nats.answers import Stored, StoredMessage, Unanswered
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.server.cluster import EmbeddedCluster
from streams.server.embedded import EmbeddedServer
from tests.support.fleet.ownership import Flush
from tests.support.fleet.records import Arrival
from tests.support.fleet.sink import Sink
from tests.support.free_ports import free_port
from tests.support.processes.commands import FORKS
from tests.support.processes.forks import Forks
from tests.support.processes.nodes import SHORT_TTL_S, Clock, Node, owner_of_port
from tests.support.secrecy import CREDENTIAL, SECRET, secrets_in

SHARDS = 16
PATIENCE_S = 100.0
LOOK_S = 0.02
names = Names()


class Fleet:
    """Made by `open_fleet` and `open_replicated_fleet`. `js` is a connection of the test's own."""

    def __init__(
        self, servers: tuple[EmbeddedServer, ...], js: JetStream, sink: Sink, directory: Path, ttl_s: float
    ) -> None:
        self.servers = servers
        self.js = js
        self.sink = sink
        self.nodes: dict[str, Node] = {}
        self._directory = directory
        self._ttl_s = ttl_s
        self._receivers = StoredConfigurations(js, names)

    @property
    def server(self) -> EmbeddedServer:
        """The only server, or the first."""
        return self.servers[0]

    async def configure(self, receivers: Iterable[str], **members: Any) -> None:
        """Put the configuration of receivers at the sink, each at its own path; all have what is secret."""
        hidden = {"secrets": [SECRET], "headers": {"authorization": CREDENTIAL}}
        for receiver in receivers:
            config = msgspec.json.encode({"url": self.sink.url(receiver), **hidden, **members})
            put = partial(self._put, receiver, config)
            await self.until_true(put, f"the configuration of {receiver} is stored")

    async def _put(self, receiver: str, config: bytes) -> bool:
        """True if it was stored; a stream with replicas may have no leader at the moment."""
        answer = await self._receivers.put(receiver, config)
        assert isinstance(answer, Stored | Unanswered), answer
        return isinstance(answer, Stored)

    async def start(
        self,
        name: str = "one",
        descriptors: int | None = None,
        *,
        nats: Sequence[str] = (),
        clock: Clock | None = None,
        forks: Forks = FORKS,
        workers: int = 1,
    ) -> Node:
        """Start a node, or one that has ended once more; it owns nothing yet.

        `nats`: the addresses where it finds the servers, if not their own; `clock`: its own wall clock;
        `forks`: of the version that it runs; `workers`: its processes.
        """
        if name not in self.nodes:
            urls = ",".join(nats or [server.url for server in self.servers])
            self.nodes[name] = Node(
                name, self._directory, urls, SHARDS, self._ttl_s, descriptors, clock, workers
            )
        node = self.nodes[name]
        node.forks = forks
        await node.start()
        return node

    async def start_ready(
        self,
        name: str = "one",
        descriptors: int | None = None,
        *,
        nats: Sequence[str] = (),
        clock: Clock | None = None,
        forks: Forks = FORKS,
    ) -> Node:
        """Starts a node, and waits until it owns all shards that it should."""
        node = await self.start(name, descriptors, nats=nats, clock=clock, forks=forks)
        await self.hears(node, "node.ready")
        return node

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Return when it holds. Fails where that takes too long, or a node has ended by itself."""

        async def asked() -> bool:
            return holds()

        await self.until_true(asked, what)

    async def until_true(
        self, holds: Callable[[], Awaitable[bool]], what: str, look_s: float = LOOK_S
    ) -> None:
        """Waits for a condition that is asked for with `await`, with a pause before it is asked again."""
        deadline = time.monotonic() + PATIENCE_S
        while not await holds():
            for node in self.nodes.values():
                assert not node.failed, f"node {node.name} ended by itself: {node.said[-3:]}"
            assert time.monotonic() < deadline, f"it never came about that {what}"
            await asyncio.sleep(look_s)

    async def hears(self, node: Node, event: str, times: int = 1) -> None:
        """Return when the running process of a node has logged that so often."""
        await self.until(lambda: node.times(event) >= times, f"{node.name} says {event} ({times})")

    async def close(self) -> None:
        """End what is left; no node may have complained."""
        for node in self.nodes.values():
            await node.kill()
        assert not [complaint for node in self.nodes.values() for complaint in node.complaints]

    async def leader(self, stream: str) -> EmbeddedServer:
        """The server that leads a stream with replicas."""
        while True:
            answer = await self.js.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout_s=5.0)
            name = msgspec.json.decode(answer.data).get("cluster", {}).get("leader", "")
            for server in self.servers:
                if server.directory.name == name:
                    return server

    async def elected(self, gone: EmbeddedServer) -> None:
        """Return when each stream is led by another server than the one that is gone."""
        for stream in (*names.streams, names.nodes):
            await self.until_true(partial(self._led, stream, gone), f"another server leads {stream}")

    async def _led(self, stream: str, gone: EmbeddedServer) -> bool:
        try:
            answer = await self.js.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout_s=1.0)
        except Unavailable:
            return False
        name = msgspec.json.decode(answer.data).get("cluster", {}).get("leader", "")
        return name not in ("", gone.directory.name)

    # ---- looking

    async def ask(self, verb: str, receiver: str) -> dict[str, Any]:
        """The answer to a control request."""
        answer = await self.js.request(f"angarium.ctl.{verb}.{receiver}", b"", timeout_s=5.0)
        assert not secrets_in(answer.data.decode()), answer.data
        members: dict[str, Any] = msgspec.json.decode(answer.data)
        assert members["ok"], members
        return members

    async def read(self, stream: str, subject: str) -> list[StoredMessage]:
        """All messages of a subject, oldest first."""
        messages: list[StoredMessage] = []
        pending = 1
        while pending:
            page = await self.js.read(stream, subject, messages[-1].position + 1 if messages else 1)
            messages += page.messages
            pending = page.pending
        return messages

    async def flushes(self) -> list[Flush]:
        """Every flush of every shard, in the order of the journal."""
        to_arrivals_s = time.monotonic() - time.time()
        return [
            _flush(each, to_arrivals_s)
            for each in await self.read(names.journal, f"{names.prefix}.journal.*")
        ]

    def arrivals(self) -> dict[int, list[Arrival]]:
        """All that came, by shard."""
        found: dict[int, list[Arrival]] = {}
        for receiver, seen in self.sink.arrivals.items():
            found.setdefault(shard(receiver), []).extend(seen)
        return found

    async def owners(self) -> dict[int, str]:
        """The owner of each shard, by the bucket."""
        found: dict[int, str] = {}
        for shard in range(SHARDS):
            message = await self.js.last_message(names.actors, names.actor_keys.owner(shard))
            if message is not None:
                owner = msgspec.json.decode(message.data)
                if owner["released"] is None:
                    found[shard] = owner["node"]
        return found

    async def owns(self, node: str) -> bool:
        """True if the node holds a shard."""
        return node in (await self.owners()).values()

    async def owns_all(self, node: str) -> bool:
        """True if the node holds every shard."""
        return list((await self.owners()).values()) == [node] * SHARDS


def shard(receiver: str) -> int:
    """The shard of a receiver."""
    tenant, _, name = receiver.partition(".")
    return shard_of(tenant, name, SHARDS)


def _flush(message: StoredMessage, to_arrivals_s: float) -> Flush:
    """Decodes a message of the journal by its documented format."""
    said = msgspec.json.decode(message.data)
    return Flush(
        shard=int(message.subject.rpartition(".")[2]), node=said["node"], epoch=said["epoch"],
        flush=said["flush"], at=said["at"] + to_arrivals_s,
    )  # fmt: skip


@asynccontextmanager
async def open_fleet(
    directory: Path, *, ttl_s: float = SHORT_TTL_S, sync_interval: str | None = None
) -> AsyncIterator[Fleet]:
    """An installation without a node so far; `sync_interval` is the server's (`EmbeddedServer`)."""
    server = EmbeddedServer(directory / "nats", port=free_port(), sync_interval=sync_interval)
    async with server, _open(directory, (server,), ttl_s) as fleet:
        yield fleet


@asynccontextmanager
async def open_replicated_fleet(directory: Path) -> AsyncIterator[Fleet]:
    """An installation on three servers, without a node so far."""
    cluster = EmbeddedCluster(directory / "nats")
    async with cluster, _open(directory, cluster.servers, REPLICATED_TTL_S) as fleet:
        yield fleet


@asynccontextmanager
async def _open(directory: Path, servers: tuple[EmbeddedServer, ...], ttl_s: float) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        sink = await stack.enter_async_context(Sink())
        wire = await connect(ConnectOptions(servers=tuple(each.url for each in servers), name="test"))
        stack.push_async_callback(wire.close)
        js = JetStream(wire)
        await js.start()
        stack.push_async_callback(js.stop)
        await setup(js, Installation(shards=SHARDS, max_bytes=512 << 20, replicas=len(servers)))
        fleet = Fleet(servers, js, sink, directory, ttl_s)
        sink.whose = lambda port: owner_of_port(port, sink.port, fleet.nodes.values())
        stack.push_async_callback(fleet.close)
        yield fleet
