"""The supervisor of several workers: it starts them, starts those again that end, and stops all together.

It is a process of its own and delivers nothing, so a worker that crashes or hangs does not affect it. Each
worker is a member of the fleet like any other node, with the name `NODE-1`, `NODE-2`, …
"""

import asyncio
import logging
import signal
from functools import partial

from msgspec.structs import replace

from actors.errors import AngariumError
from angarium.monitor_server import listening
from angarium.settings import Settings, worker_name
from angarium.terminal.run import ending_signals
from angarium.workers.supervisor_pipe import stop_timeout_s
from angarium.workers.worker import Start, Worker
from angarium.workers.worker_process import WorkerProcess
from angarium.workers.workers_monitor import WorkersMonitor

log = logging.getLogger(__name__)


class WorkersFailed(AngariumError):
    """No worker can start, or one did not stop as it should."""


async def supervise(settings: Settings) -> None:
    """Run the workers until they are to end. Raises WorkersFailed, MonitorFailed.

    Then all hand over their shards and end. A second SIGTERM or SIGINT ends them at once; a terminal that is
    closed may send SIGHUP twice.
    """
    supervisor = Supervisor(settings, WorkerProcess.start)
    for number in ending_signals():
        stop = partial(supervisor.stop, insists=number is not signal.SIGHUP)
        asyncio.get_running_loop().add_signal_handler(number, stop)
    if settings.monitor is None:
        await supervisor.run()
        return
    async with listening(settings.monitor, WorkersMonitor(supervisor.workers).answer):
        await supervisor.run()


class Supervisor:
    """The workers of one machine, started by `start`."""

    def __init__(self, settings: Settings, start: Start) -> None:
        names = [worker_name(settings.node, number) for number in range(1, settings.workers + 1)]
        self.workers = [
            Worker(replace(settings, node=name), start, self._stop_if_none_can_start) for name in names
        ]
        self._stop_timeout_s = stop_timeout_s(settings)
        self._stopping = asyncio.Event()
        self._kill_now = asyncio.Event()

    def stop(self, *, insists: bool = True) -> None:
        """Stop all workers; a second call, by a user who insists, kills them."""
        if self._stopping.is_set() and insists:
            self._kill_now.set()
        self._stopping.set()

    async def run(self) -> None:
        """Return when all workers have ended after `stop`. Raises WorkersFailed."""
        tasks = [asyncio.ensure_future(worker.run(self._stopping)) for worker in self.workers]
        stopping = asyncio.ensure_future(self._stopping.wait())
        # A task that ends before is a defect: the others stop, and it is raised below.
        await asyncio.wait((stopping, *tasks), return_when=asyncio.FIRST_COMPLETED)
        failed = all(worker.cannot_start for worker in self.workers)
        self._stopping.set()
        log.info("workers.stopping", extra={"workers": len(tasks)})
        self._send_all(signal.SIGTERM)
        kill_now = asyncio.ensure_future(self._kill_now.wait())
        ended = asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait(
            (ended, kill_now), timeout=self._stop_timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        kill_now.cancel()
        self._send_all(signal.SIGKILL)
        await ended
        for task in tasks:
            task.result()
        if failed:
            raise WorkersFailed("no worker can start; each has said why")
        if unclean := [f"{worker.name}: {worker.unclean}" for worker in self.workers if worker.unclean]:
            raise WorkersFailed(f"not all workers stopped as they should ({'; '.join(unclean)})")

    def _send_all(self, number: signal.Signals) -> None:
        for worker in self.workers:
            worker.send_signal(number)

    def _stop_if_none_can_start(self) -> None:
        """Stop if no worker can start: nothing would change by itself."""
        if all(worker.cannot_start for worker in self.workers):
            self._stopping.set()
