"""Processes of workers that a test plays: it says when they begin to work and how they end."""

import asyncio
import signal
from collections import defaultdict
from collections.abc import Callable

from angarium.http_server import Reply
from angarium.settings import Settings
from streams.fleet.process_runs import ProcessRuns


class FakeMonitor:
    """A monitor that gives the answers in `pages`; none for other pages."""

    def __init__(self) -> None:
        self.has_answered = False
        self.pages: dict[str, Reply] = {}
        self.asked: list[str] = []
        self.closed = asyncio.Event()

    async def ask(self, path: str, within_s: float | None) -> Reply | None:
        self.asked.append(path)
        if path in self.pages:
            return self.pages[path]
        try:
            async with asyncio.timeout(within_s):
                await self.closed.wait()
        except TimeoutError:
            pass
        return None


class FakeProcess:
    """A process that stops at SIGTERM, unless it is `stubborn`, and dies of SIGKILL."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = 1
        self.monitor = FakeMonitor()
        self.signals: list[signal.Signals] = []
        self.stubborn = False
        self._status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def gone(self) -> bool:
        return self._status.done()

    def end(self, status: int) -> None:
        if not self._status.done():
            self._status.set_result(status)

    async def ended(self) -> int:
        status = await self._status
        self.monitor.closed.set()
        return status

    def send_signal(self, number: signal.Signals) -> None:
        if self._status.done():
            return
        self.signals.append(number)
        if number == signal.SIGKILL:
            self.end(-number)
        elif not self.stubborn:
            self.end(0 if self.monitor.has_answered else -number)


class Machine:
    """Starts processes; `started` are those of each worker, `at` says when, `runs` what each was told.

    `manner` is what each does first. The system refuses the next `refusals`.
    """

    def __init__(self, manner: Callable[[FakeProcess], None] = lambda process: begin(process)) -> None:
        self.manner = manner
        self.start_takes_s = 0.0
        self.refusals = 0
        self.started: defaultdict[str, list[FakeProcess]] = defaultdict(list)
        self.at: defaultdict[str, list[float]] = defaultdict(list)
        self.runs: defaultdict[str, list[ProcessRuns]] = defaultdict(list)

    async def start(self, settings: Settings, runs: ProcessRuns) -> FakeProcess:
        self.runs[settings.node].append(runs)
        self.at[settings.node].append(asyncio.get_running_loop().time())
        if self.refusals:
            self.refusals -= 1
            raise BlockingIOError(11, "Resource temporarily unavailable")
        await asyncio.sleep(self.start_takes_s)
        process = FakeProcess(settings.node)
        self.started[settings.node].append(process)
        self.manner(process)
        return process

    @property
    def processes(self) -> list[FakeProcess]:
        return [each for of_worker in self.started.values() for each in of_worker]


def begin(process: FakeProcess) -> None:
    """The worker found everything right, and works."""
    process.monitor.has_answered = True
    process.monitor.pages["/healthz"] = Reply(200, body=b"ok\n")


def refuse(process: FakeProcess) -> None:
    """The worker says why it cannot work, and ends."""
    process.end(1)


def crash(process: FakeProcess, status: int = -signal.SIGSEGV) -> None:
    """The worker dies as soon as it works."""
    begin(process)
    process.end(status)
