"""A connection that is given up or closed while it is made ends, even if nats-py loses the cancellation."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from streams.nats.client import NatsClient
from streams.nats.connection import ConnectOptions, NatsWire, connect
from streams.server.embedded import EmbeddedServer
from tests.support.free_ports import free_port
from tests.support.waiting import PATIENCE_S

NEVER_S = 3600.0


@pytest.fixture
async def options(tmp_path: Path) -> AsyncIterator[ConnectOptions]:
    async with EmbeddedServer(tmp_path / "nats", port=free_port()) as server:
        yield ConnectOptions(servers=(server.url,))


class Clients:
    """The clients that connect; all but the first `normal` ones lose the cancellation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, normal: int) -> None:
        self.all: list[NatsClient] = []
        self.has_begun = asyncio.Event()
        connect_once = NatsClient.connect

        async def connect_losing_cancellation(client: NatsClient, *servers: Any, **named: Any) -> None:
            self.all.append(client)
            await connect_once(client, *servers, **named)
            if len(self.all) > normal:
                self.has_begun.set()
                await loses_cancellation()

        monkeypatch.setattr(NatsClient, "connect", connect_losing_cancellation)


async def loses_cancellation() -> None:
    """Connects like nats-py when it is cancelled just as it gets a connection: `asyncio.wait_for` of
    Python 3.11 returns that, and the cancellation is lost."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(NEVER_S)
    await asyncio.sleep(NEVER_S)


async def test_giving_up_ends(options: ConnectOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    clients, wire = Clients(monkeypatch, normal=0), NatsWire(options)
    opening = asyncio.ensure_future(wire.open())
    await clients.has_begun.wait()
    opening.cancel()
    assert await asyncio.wait({opening}, timeout=PATIENCE_S) == ({opening}, set())
    await wire.close()


async def test_closing_ends(options: ConnectOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first client has given up, and its successor is connecting."""
    clients = Clients(monkeypatch, normal=1)
    wire = await connect(options)
    await clients.all[0].close()
    await clients.has_begun.wait()
    async with asyncio.timeout(PATIENCE_S):
        await wire.close()
