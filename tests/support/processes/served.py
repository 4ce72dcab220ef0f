"""The HTTP API of an `angarium dev`, for programs that know only its address and a token."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from msgspec import Struct

from tests.support.free_ports import free_port
from tests.support.processes.commands import PATIENCE_S, Terminal, line_with


class Served(Struct, frozen=True):
    """The address of an API, and a token for everything."""

    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def described(self) -> Any:
        return httpx.get(f"{self.url}/openapi.json").json()


@contextmanager
def serving(directory: Path) -> Iterator[Served]:
    """Serve while the block runs; at the end nothing was a defect."""
    terminal = Terminal(directory, "")
    del terminal.environment["ANGARIUM_NATS"]
    port = free_port()
    with terminal.start("dev", "--port", str(free_port()), "--api-port", str(port)) as process:
        line_with(process.stdout, "ready: NATS on ")
        token = (directory / ".angarium" / "token").read_text().strip()
        yield Served(f"http://127.0.0.1:{port}", token)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    assert "api.broken" not in log, log
