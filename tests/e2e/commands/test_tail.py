"""`angarium tail` while NATS is away."""

import asyncio
import signal
from pathlib import Path

from streams.server.embedded import EmbeddedServer
from tests.support.processes.commands import Terminal, line_with


async def test_tail_says_once_that_nats_is_away_and_that_it_is_back(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats", port=0) as server:
        terminal = Terminal(tmp_path, server.url)
        await asyncio.to_thread(terminal.done, "setup")
        with terminal.start("tail", "acme") as running:
            await asyncio.to_thread(line_with, running.stderr, "tenant acme has no receivers")
            await server.kill()
            away = await asyncio.to_thread(running.stderr.readline)
            await server.start()
            back = await asyncio.to_thread(running.stderr.readline)
            running.send_signal(signal.SIGINT)
    assert away.startswith("note: NATS is away since ")
    assert away.endswith("Z; waiting\n")
    assert back.startswith("note: NATS is back since ")
