"""The sink, as its starter sees it: a process that answers orders by lines and ends with us."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from angarium import package_check
from angarium.bench.sink import Report


class SinkProcess:
    """Made by `running_sink`. Receivers are paths below `url`."""

    def __init__(self, orders: asyncio.StreamWriter, answers: asyncio.StreamReader, port: int) -> None:
        self._orders = orders
        self._answers = answers
        self.url = f"http://127.0.0.1:{port}/"

    async def report(self) -> Report:
        """Reports what has come since the count began."""
        return await self._ask(b"report\n")

    async def count(self) -> int:
        """Counts the deliveries that have come since, without repeats; cheaper than a report."""
        return (await self._ask(b"count\n")).deliveries

    async def forget(self) -> None:
        """Begin to count again."""
        await self._ask(b"forget\n")

    async def _ask(self, order: bytes) -> Report:
        self._orders.write(order)
        return msgspec.json.decode(await self._answers.readline(), type=Report)


@asynccontextmanager
async def running_sink() -> AsyncIterator[SinkProcess]:
    """A sink that ends when we end, in any way, since its standard input ends.

    It is in a session of its own, so that Ctrl-C reaches us alone.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *package_check.python(), "-m", "angarium.bench.sink", stdin=pipe, stdout=pipe, start_new_session=True
    )
    orders, answers = process.stdin, process.stdout
    if orders is None or answers is None:
        raise RuntimeError("a process was started with pipes and has none")
    try:
        yield SinkProcess(orders, answers, int(await answers.readline()))
    finally:
        orders.close()
        await process.wait()
