"""Runs the contracts on the server in memory and on the real nats-server, with the same results.

One real server serves a test module; the `prefix` of each test keeps them apart.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from angarium.access import Access
from angarium.settings import Settings
from streams.installation.topology import Names
from streams.nats.answers import ConsumerInfo, StreamInfo
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.server.embedded import EmbeddedServer
from tests.contract.support.consumers import MILLISECOND, MakeConsumer, ManualPuller, RawPull, TakeUp
from tests.contract.support.faults import FaultyJetStream, misbehaving
from tests.contract.support.routers import OpenOwner, owners
from tests.contract.support.servers import MemoryServer, RealServer, Server
from tests.support.installation import SHARDS, install

_tests = count(1)

MakeStream = Callable[..., Awaitable[StreamInfo]]

SHORTENED = {
    "streams.journal.journal.FLUSH_ROUTING_AFTER_S": 0.2,
    "streams.lost_tails.comparison.COMPARE_AGAIN_AFTER_S": 0.03,
    "streams.lost_tails.comparison.MISSING_FOR_S": 0.3,
    "streams.nats.retry.PAUSE_MAX_S": 0.1,
}
"""Constants of the product for which a test would wait; one that is about the time itself sets its own."""


@pytest.fixture(autouse=True)
def _shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SHORTENED.items():
        monkeypatch.setattr(name, value)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nats_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    directory: Path = tmp_path_factory.mktemp("nats")
    async with EmbeddedServer(directory, port=0) as server:
        yield server.url


@pytest.fixture(params=["memory", "nats-server"])
def server(request: pytest.FixtureRequest) -> Server:
    if request.param == "memory":
        return MemoryServer()
    return RealServer(request.getfixturevalue("nats_url"))


@pytest.fixture
def prefix() -> str:
    """The first token of everything that a test names."""
    return f"t{next(_tests)}"


@pytest.fixture
async def wire(server: Server) -> AsyncIterator[Wire]:
    wire = await server.connect("test")
    yield wire
    await wire.close()


@pytest.fixture
async def js(wire: Wire) -> AsyncIterator[JetStream]:
    js = JetStream(wire)
    await js.start()
    yield js
    await js.stop()


@pytest.fixture
async def names(js: JetStream, prefix: str) -> Names:
    """A small installation of its own."""
    return await install(js, prefix)


@pytest.fixture
async def access(nats_url: str, prefix: str) -> AsyncIterator[Access]:
    """The access of a command to an installation of its own on the real server, without a node."""
    js = JetStream(await connect(ConnectOptions(servers=(nats_url,))))
    await js.start()
    await install(js, prefix)
    yield Access(js, Settings(nats=(nats_url,), prefix=prefix, shards=SHARDS, node="a"))
    await js.stop()
    await js.wire.close()


@pytest.fixture
async def faulty(server: Server, names: Names) -> AsyncIterator[FaultyJetStream]:
    """A connection of its own to the installation, whose exchanges go wrong on demand."""
    async with misbehaving(server) as js:
        yield js


@pytest.fixture
async def open_owner(server: Server, names: Names) -> AsyncIterator[OpenOwner]:
    """Opens owners of the partition, one after the other; all are stopped at the end."""
    async with owners(server, names) as open_one:
        yield open_one


@pytest.fixture
def make_stream(js: JetStream, prefix: str) -> MakeStream:
    """Creates the stream named like the prefix, over all subjects below it, unless told otherwise."""

    async def make(**config: Any) -> StreamInfo:
        wanted = {"name": prefix, "subjects": [f"{prefix}.>"], "storage": "file", "allow_direct": True}
        return await js.stream_create(wanted | config)

    return make


@pytest.fixture
async def stream(make_stream: MakeStream, prefix: str) -> str:
    return (await make_stream()).name


@pytest.fixture
def make_consumer(js: JetStream, stream: str) -> MakeConsumer:
    """Creates the consumer `c`, in memory and with one ack for all up to a message, unless told otherwise."""

    async def make(**config: Any) -> ConsumerInfo:
        wanted = {
            "name": "c",
            "ack_policy": "all",
            "ack_wait": 60_000 * MILLISECOND,
            "max_ack_pending": 1000,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 60_000 * MILLISECOND,
        }
        return await js.consumer_create(stream, wanted | config)

    return make


@pytest.fixture
async def raw(wire: Wire, stream: str) -> RawPull:
    raw = RawPull(wire, stream)
    await raw.open()
    return raw


@pytest.fixture
async def take_up(js: JetStream, stream: str) -> AsyncIterator[TakeUp]:
    """Starts a puller on `c`; all are stopped at the end."""
    hands: list[ManualPuller] = []

    async def start(**options: Any) -> ManualPuller:
        hand = ManualPuller(options.pop("js", js), stream, **options)
        hands.append(hand)
        await hand.puller.start()
        return hand

    yield start
    for hand in hands:
        await hand.puller.stop()
