"""The client leaves a hung nats-server at once, even with much data unread."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
from pathlib import Path

import pytest
from nats.aio.client import DEFAULT_MAX_OUTSTANDING_PINGS

from angarium.settings import REPLICATED_TTL_S
from streams.fleet.lease import LEASE_MARGIN_S
from streams.fleet.members import RENEWALS_PER_TTL
from streams.nats import client, connection
from streams.nats.answers import Put
from streams.nats.client import NatsClient
from streams.nats.connection import ConnectOptions, connect
from streams.server.embedded import EmbeddedServer
from tests.support.waiting import PATIENCE_S, KeptMessages, until


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
            await wire.subscribe("x", seen := KeptMessages())
            await wire.publish("x", b"1")
            await until(lambda: seen.messages[-1].data == b"1" if seen.messages else False)
        finally:
            os.kill(pid, signal.SIGCONT)
        await wire.close()


def test_a_node_leaves_a_server_that_stands_still_while_its_lease_lasts() -> None:
    """nats-py leaves it at the third ping; the lease may have been renewed last a third of it before."""
    left_s = (DEFAULT_MAX_OUTSTANDING_PINGS + 1) * connection.PING_INTERVAL_S
    assert left_s < REPLICATED_TTL_S * (1 - 1 / RENEWALS_PER_TTL) - LEASE_MARGIN_S


async def test_a_server_that_says_nothing_is_not_left_open() -> None:
    """A hung server looks like this: the kernel accepts connections for it."""

    async def ignore(error: Exception) -> None:
        """nats-py tells each attempt that fails."""

    loop, client = asyncio.get_running_loop(), NatsClient(wants_tls=False)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.setblocking(False)

        async def accept() -> socket.socket:
            accepted, _ = await loop.sock_accept(listener)
            return stack.enter_context(accepted)

        async def welcome() -> None:
            with await accept() as first:
                await loop.sock_sendall(first, b'INFO {"version":"2.12.0","max_payload":1024}\r\n')
                while b"PING\r\n" not in await loop.sock_recv(first, 4096):
                    """The client's CONNECT comes first."""
                await loop.sock_sendall(first, b"PONG\r\n")

        place = f"nats://127.0.0.1:{listener.getsockname()[1]}"
        async with asyncio.timeout(PATIENCE_S):
            welcomed = asyncio.create_task(welcome())
            await client.connect([place], connect_timeout=1, reconnect_time_wait=0, error_cb=ignore)
            await welcomed
            mute = await accept()
            assert await loop.sock_recv(mute, 1) == b""  # It is left, and the next one is tried.
            next_one = await accept()
            gc.collect()  # It tells of connections that are still open, and pytest fails for it.
            await client.close()
            client.abandon()
            assert await loop.sock_recv(next_one, 1) == b""


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
