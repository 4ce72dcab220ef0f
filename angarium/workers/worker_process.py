"""The process of one worker: a fresh interpreter, so that nothing of the supervisor's is in it.

It has a session of its own: Ctrl-C in the terminal reaches only the supervisor. Its output is ours.
"""

import asyncio
import signal
import socket
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

from angarium import package_check
from angarium.settings import Settings
from angarium.workers.monitor_client import MonitorClient
from angarium.workers.supervisor_pipe import line_for_worker
from streams.fleet.process_runs import ProcessRuns


class WorkerProcess:
    """A process that runs, or has ended; started by `start`."""

    def __init__(self, process: Process, monitor: MonitorClient) -> None:
        self._process = process
        self.monitor = monitor

    @classmethod
    async def start(cls, settings: Settings, runs: ProcessRuns) -> "WorkerProcess":
        """Start a worker with these settings and runs. Raises OSError."""
        ours, theirs = socket.socketpair()
        command = [*package_check.python(), "-m", "angarium", "node", "--node", settings.node]
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *command, "--supervised", str(theirs.fileno()),
                    stdin=PIPE, pass_fds=(theirs.fileno(),), start_new_session=True,
                )  # fmt: skip
        except OSError:
            ours.close()
            raise
        assert process.stdin is not None
        # The pipe stays open: its end tells the worker to stop.
        process.stdin.write(line_for_worker(settings, runs))
        return cls(process, await MonitorClient.over(ours))

    @property
    def pid(self) -> int:
        """The pid."""
        return self._process.pid

    async def ended(self) -> int:
        """Return when the process has ended: its exit status; negative: the signal that ended it."""
        status = await self._process.wait()
        self.monitor.close()
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
