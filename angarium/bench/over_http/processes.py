"""The processes of `angarium bench api`, as the bench sees them. All of them end when it ends."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import click
import msgspec

from angarium import package_check
from angarium.bench.over_http.client import Order, Outcome
from angarium.bench.sink_process import running_module
from angarium.development.local_node import Setting, clean_environment
from streams.server.child import Child

READY_TIMEOUT_S = 30.0
PROGRESS_POLL_S = 0.02
STOP_AFTER_S = 10.0
_SERVING = re.compile(rb"serving on http://127\.0\.0\.1:(\d+)")


def check() -> None:
    """Raises click.ClickException if the API is not installed."""
    if find_spec("litestar") is None or find_spec("uvicorn") is None:
        raise click.ClickException("the HTTP API is not installed: install the extra api (see README)")


class LineProcess:
    """A module of Angarium, run as a process that reads and writes lines. Made by `line_process`."""

    def __init__(self, pid: int, orders: asyncio.StreamWriter, answers: asyncio.StreamReader) -> None:
        self.pid = pid
        self._orders = orders
        self._answers = answers

    async def line(self) -> bytes:
        """The next line that it writes. Raises click.ClickException if it has ended."""
        line = await self._answers.readline()
        if not line:
            raise click.ClickException("a process of the bench ended by itself")
        return line

    async def carry_out(self, order: Order) -> Outcome:
        """Let the client make requests. Raises click.ClickException if one of them was refused."""
        self._orders.write(msgspec.json.encode(order) + b"\n")
        outcome = msgspec.json.decode(await self.line(), type=Outcome)
        if outcome.refusals or outcome.lost:
            what = f"{outcome.refusals} requests were refused, and {outcome.lost} not answered"
            raise click.ClickException(f"{what}: {outcome.refusal}")
        return outcome


@asynccontextmanager
async def line_process(module: str) -> AsyncIterator[LineProcess]:
    """A module of Angarium, run as a process of its own."""
    async with running_module(module) as (pid, orders, answers):
        yield LineProcess(pid, orders, answers)


@asynccontextmanager
async def serving_api(
    directory: Path, settings: Mapping[str, Setting], ready_timeout_s: float = READY_TIMEOUT_S
) -> AsyncIterator[tuple[int, int]]:
    """`angarium api` with these settings: its port, and its pid (0 if the system does not show it).

    It is ready when it has read all configurations.
    """
    log, config = directory / "api.log", directory / "api.toml"
    config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    command = [*package_check.python(), "-m", "angarium", "api", "--port", "0", "--config", str(config)]
    child = await Child.spawn(command, log=log, grace_s=STOP_AFTER_S, inherit=[], environ=clean_environment())
    try:
        async with asyncio.timeout(ready_timeout_s):
            while (found := _SERVING.search(log.read_bytes())) is None:
                if child.has_ended:
                    raise click.ClickException(f"the API ended by itself: {log.read_text()}")
                await asyncio.sleep(PROGRESS_POLL_S)
        yield int(found[1]), child.program_pid or 0
    finally:
        await child.stop()
