"""One worker: a node of its own, whose process is started again whenever it ends by itself."""

import asyncio
import logging
import secrets
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from angarium.http_server import Reply
from angarium.settings import Settings
from angarium.workers.restart_pauses import RestartPauses
from streams.fleet.process_runs import ProcessRuns

ANSWER_TIMEOUT_S = 3.0
"""Time in which a worker answers its supervisor: less than the 5 s that the documentation gives to probes."""
RUN_BYTES = 11
ENDED_RUNS_MAX = 100
"""Ended runs that a new process is told of. Several: a process that ended early may have left shards of
earlier runs unclaimed. A hundred are enough: in a crash loop, other nodes have taken them long before."""
START_FAILURES = (1, 2)
"""Exit statuses of a command that has said why it cannot work (`angarium.cli.main`)."""
log = logging.getLogger(__name__)


class WorkerMonitor(Protocol):
    """The monitor of a process; `has_answered` once there was an answer."""

    @property
    def has_answered(self) -> bool: ...
    async def ask(self, path: str, within_s: float | None) -> Reply | None: ...


class StartedProcess(Protocol):
    """A process that was started; see `WorkerProcess`."""

    @property
    def pid(self) -> int: ...
    @property
    def monitor(self) -> WorkerMonitor: ...
    async def ended(self) -> int: ...
    def send_signal(self, number: signal.Signals) -> None: ...


Start = Callable[[Settings, ProcessRuns], Awaitable[StartedProcess]]


class Worker:
    """A worker with the settings of a single node.

    - `starts`: processes that were started.
    - `unclean`: how it ended after it was told to stop; empty if it ended as it should.
    """

    def __init__(self, settings: Settings, start: Start, ended: Callable[[], None]) -> None:
        """`ended` is called when it has ended by itself."""
        self.name = settings.node
        self.starts = 0
        self.unclean = ""
        self._settings = settings
        self._start = start
        self._on_end = ended
        self._ended_runs: deque[str] = deque(maxlen=ENDED_RUNS_MAX)
        self._process: StartedProcess | None = None
        self._start_failed = False
        self._last_signal: signal.Signals | None = None

    @property
    def has_answered(self) -> bool:
        """True if its process runs and has answered, so that it has begun to work."""
        return self._process is not None and self._process.monitor.has_answered

    @property
    def is_running(self) -> bool:
        """True if its process runs."""
        return self._process is not None

    @property
    def cannot_start(self) -> bool:
        """True if its process said why it cannot work, and none has answered since."""
        return self._start_failed and not self.has_answered

    async def ask(self, path: str) -> Reply | None:
        """The answer of its process; None if there is none in time."""
        if self._process is None:
            return None
        return await self._process.monitor.ask(path, ANSWER_TIMEOUT_S)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to its process, or to the one that is being started."""
        self._last_signal = number
        if self._process is not None:
            self._process.send_signal(number)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep a process running until `stop`; returns when there is none any more."""
        pauses = RestartPauses()
        while not stop.is_set():
            began_at = asyncio.get_running_loop().time()
            how = await self._run_once()
            if stop.is_set():
                self.unclean = how
                return
            ran_s = asyncio.get_running_loop().time() - began_at
            pause_s = pauses.after(ran_s)
            log.warning("worker.ended", extra={
                "worker": self.name, "how": how or "exit status 0", "ran_s": round(ran_s, 1),
                "starts_again_in_s": pause_s,
            })  # fmt: skip
            self._on_end()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await stop.wait()

    async def _run_once(self) -> str:
        """Start a process and wait for its end; returns what is wrong with that, or nothing."""
        self.starts += 1
        run, ended = secrets.token_hex(RUN_BYTES), tuple(self._ended_runs)
        try:
            process = self._process = await self._start(self._settings, ProcessRuns(run, ended))
        except OSError as error:  # Too many processes, or too little memory.
            return f"could not be started: {error.strerror}"
        log.info("worker.started", extra={"worker": self.name, "pid": process.pid})
        if self._last_signal is not None:  # It came while the process was being started.
            process.send_signal(self._last_signal)
        first = asyncio.ensure_future(process.monitor.ask("/healthz", None))
        status = await process.ended()
        await first
        self._ended_runs.append(run)
        has_answered, self._process = process.monitor.has_answered, None
        self._start_failed = not has_answered and status in START_FAILURES
        if status == 0 or (status == -signal.SIGTERM and not has_answered):
            return ""
        return f"exit status {status}" if status > 0 else f"killed by {signal.Signals(-status).name}"
