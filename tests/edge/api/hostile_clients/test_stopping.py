"""Stopping: requests in flight are answered, no client is waited for, and the log is quiet."""

import asyncio
import logging
from contextlib import AsyncExitStack

import pytest

from angarium.access import Access, open_jetstream
from angarium.api import server
from angarium.settings import Settings
from streams.installation.setup import setup
from tests.edge.api.conftest import Api
from tests.edge.api.hostile_clients.raw import PATH, PATIENCE_S, connected
from tests.support.waiting import until

BATCHES = "/v1/tenants/acme/events"


async def test_requests_in_flight_end_first_and_slow_clients_are_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "STOP_TIMEOUT_S", 1)
    async with open_jetstream(settings) as js, AsyncExitStack() as serving:
        await setup(js, Access(js, settings).installation)
        here = server.bind_socket("127.0.0.1", 0)
        state = await serving.enter_async_context(server.served(settings, here))
        api = Api(js, settings, server.url(here), state)
        token = (await api.token()).text

        def head(path: str) -> bytes:
            lines = f"host: x\r\nauthorization: Bearer {token}\r\ncontent-length: 2\r\n\r\n"
            return f"POST {path} HTTP/1.1\r\n{lines}".encode()

        idle, late, slow, slow_batch = [await connected(api) for _ in range(4)]
        idle.writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            await idle.reader.readuntil(b"}")
        for raw, path in ((late, PATH), (slow, PATH), (slow_batch, BATCHES)):
            raw.writer.write(head(path) + b"{")
        await until(lambda: state.limits.requests == 3)
        stopping = asyncio.ensure_future(serving.aclose())
        assert await idle.rest() == b"", "who has no request in flight is left"
        late.writer.write(b"}")
        answer = await late.rest()
        assert answer.startswith(b"HTTP/1.1 202 ")
        assert b"connection: close\r\n" in answer
        for raw in (slow, slow_batch):
            answer = await raw.rest()
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in answer
            assert b"process is stopping" in answer
        await stopping
        for raw in (idle, late, slow, slow_batch):
            raw.writer.close()
    assert not [each for each in caplog.records if each.exc_info or each.levelno > logging.ERROR]
