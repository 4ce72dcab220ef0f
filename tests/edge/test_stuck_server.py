"""A nats-server that stands still: it is left at once, however much it has not read."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from streams.nats import client, connection
from streams.nats.answers import Put
from streams.nats.connection import ConnectOptions, connect
from streams.server.embedded import EmbeddedServer
from tests.contract.waiting import PATIENCE_S, Seen, until


async def test_a_server_that_stands_still_with_much_unsent_is_left_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nats-py would wait until the rest is sent, which takes the kernel a quarter of an hour to give up."""
    monkeypatch.setattr(connection, "PING_INTERVAL_S", 0.2)
    async with EmbeddedServer(tmp_path / "a", port=0) as a, EmbeddedServer(tmp_path / "b", port=0) as b:
        wire = await connect(ConnectOptions(servers=(a.url, b.url)))
        told = list[bool]()
        wire.on_change(told.append)
        url = wire._client.connected_url
        assert url is not None
        pid = int((a if url.port == a.port else b).pid_file.read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            while wire.unsent < 1 << 20:
                wire.send([Put("x", bytes(1 << 19))], ["y"])
                await asyncio.sleep(0.01)
            await until(lambda: told == [False, True])
            assert wire._client.connected_url != url
            await wire.subscribe("x", seen := Seen())
            await wire.publish("x", b"1")
            await until(lambda: seen.messages[-1].data == b"1" if seen.messages else False)
        finally:
            os.kill(pid, signal.SIGCONT)
        await wire.close()


async def test_closing_while_the_server_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "CLOSE_MAX_S", 0.2)
    async with EmbeddedServer(tmp_path, port=0) as server:
        wire = await connect(ConnectOptions(servers=(server.url,)))
        pid = int(server.pid_file.read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            while wire.unsent < 1 << 20:
                wire.send([Put("x", bytes(1 << 19))], ["y"])
                await asyncio.sleep(0.01)
            async with asyncio.timeout(PATIENCE_S):
                await wire.close()
        finally:
            os.kill(pid, signal.SIGCONT)
