"""Fixtures for tests with real processes: a fleet, and random moments from a printed seed."""

import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.server.embedded import EmbeddedServer
from tests.support.fleet.fleet import SHARDS, Fleet, open_fleet, open_replicated_fleet
from tests.support.processes.commands import FORKS, Terminal
from tests.support.processes.nodes import LONG_TTL_S, SNAPSHOTS, shortened


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let all workers share the process that is forked for commands."""
    options = session.config.option
    if options.workers and not options.collectonly:
        FORKS.open()


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """nats-server, an installation, and a sink; tests start the nodes."""
    async with open_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture
def terminal(fleet: Fleet, tmp_path: Path) -> Terminal:
    """A terminal whose commands are for that fleet."""
    terminal = Terminal(tmp_path, fleet.server.url)
    terminal.environment["ANGARIUM_SHARDS"] = str(SHARDS)
    return terminal


@pytest.fixture
async def durable_fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet whose nats-server syncs before each acknowledgement."""
    async with open_fleet(tmp_path, sync_interval="always") as fleet:
        yield fleet


@pytest.fixture
async def replicated_fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet on three servers, each with a replica of every stream."""
    async with open_replicated_fleet(tmp_path) as fleet:
        yield fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """A fleet with one node, for all tests of a module, each of which has a receiver of its own."""
    async with open_fleet(tmp_path_factory.mktemp("fleet"), ttl_s=LONG_TTL_S) as fleet:
        with shortened(SNAPSHOTS):
            await fleet.start_ready()
        yield fleet


@pytest.fixture
def rng() -> random.Random:
    """`SEED=…` in the environment draws the same moments again; what processes do then is theirs."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"moments drawn with SEED={seed}")
    return random.Random(seed)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nats_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """nats-server without a node, for the tests of a module."""
    async with EmbeddedServer(tmp_path_factory.mktemp("nats"), port=0) as server:
        yield server.url


@pytest.fixture
async def js(nats_url: str) -> AsyncIterator[JetStream]:
    """JetStream of the server without a node."""
    wire = await connect(ConnectOptions(servers=(nats_url,)))
    js = JetStream(wire)
    await js.start()
    yield js
    await js.stop()
    await wire.close()
