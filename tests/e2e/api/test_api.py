"""`angarium api` as a process: SIGTERM ends it, and every request that it had begun to read is answered."""

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streams.server.embedded import EmbeddedServer
from tests.support.processes.commands import PATIENCE_S, Terminal, line_with

CLIENTS = 20


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    async with EmbeddedServer(tmp_path / "nats", port=0) as server:
        yield Terminal(tmp_path, server.url)


async def test_sigterm_ends_it_once_requests_in_flight_are_answered(terminal: Terminal) -> None:
    terminal.done("setup")
    token = terminal.done("token", "create", "acme", "--scope", "publish").strip().splitlines()[-1]
    with terminal.start("api", "--port", "0") as api:
        port = int(line_with(api.stdout, "serving on ").strip().rpartition(":")[2])
        clients = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(CLIENTS)]
        for number, client in enumerate(clients):
            lines = f"host: x\r\nauthorization: Bearer {token}\r\nangarium-id: n{number}\r\n"
            asked = f"POST /v1/tenants/acme/events/order.created HTTP/1.1\r\n{lines}"
            # The process has begun with it when it asks for the body.
            client.sendall(f"{asked}expect: 100-continue\r\ncontent-length: 2\r\n\r\n".encode())
            assert client.recv(1 << 10).startswith(b"HTTP/1.1 100 ")
        api.terminate()
        for number, client in enumerate(clients):
            client.sendall(b"{}")
            answer = b""
            while piece := client.recv(1 << 16):
                answer += piece
            client.close()
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 202 "), answer
            assert json.loads(body)["id"] == f"n{number}"
        _, complaints = api.communicate()
        assert (api.returncode, complaints.count("error")) == (0, 0), complaints
