"""The sink, as its starter sees it, and how a bench starts such a process of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from angarium import package_check
from angarium.bench.sink import Report


class SinkProcess:
    """The sink of a bench, started by `running_sink`. Receivers are paths below `url`."""

    def __init__(self, requests: asyncio.StreamWriter, answers: asyncio.StreamReader, port: int) -> None:
        self._requests = requests
        self._answers = answers
        self.url = f"http://127.0.0.1:{port}/"

    async def report(self) -> Report:
        """Reports the requests since the count began."""
        return await self._ask(b"report\n")

    async def count(self) -> int:
        """Counts the deliveries that have come since, without repeats; cheaper than a report."""
        return (await self._ask(b"count\n")).deliveries

    async def forget(self) -> None:
        """Begin to count again."""
        await self._ask(b"forget\n")

    async def _ask(self, command: bytes) -> Report:
        self._requests.write(command)
        return msgspec.json.decode(await self._answers.readline(), type=Report)


@asynccontextmanager
async def running_module(
    module: str,
) -> AsyncIterator[tuple[int, asyncio.StreamWriter, asyncio.StreamReader]]:
    """A module of ours as a process: its pid, and the pipes to and from it.

    It ends when we end, in any way, since its standard input ends. It is in a session of its own, so that
    Ctrl-C reaches us alone.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *package_check.python(), "-m", module, stdin=pipe, stdout=pipe, start_new_session=True
    )
    requests, answers = process.stdin, process.stdout
    if requests is None or answers is None:
        raise RuntimeError("a process was started with pipes and has none")
    try:
        yield process.pid, requests, answers
    finally:
        requests.close()
        await process.wait()


@asynccontextmanager
async def running_sink() -> AsyncIterator[SinkProcess]:
    """A sink in a process of its own."""
    async with running_module("angarium.bench.sink") as (_, requests, answers):
        yield SinkProcess(requests, answers, int(await answers.readline()))
