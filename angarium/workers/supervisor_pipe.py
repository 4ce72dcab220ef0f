"""The settings and runs that a worker gets from its supervisor, and the pipe that ends with the supervisor.

The settings come through the pipe, since they may hold a password, and since a worker that starts again must
have those of the others, even if the file was changed meanwhile. The kernel closes the pipe when the
supervisor dies in any way, even by SIGKILL; then the worker ends as by SIGTERM. A thread waits for that, so
that a worker whose event loop hangs ends as well.
"""

import os
import signal
import sys
import threading
import time

import msgspec

from angarium.settings import Settings
from angarium.telemetry.otel_variables import STOP_MAX_S
from streams.fleet.process_runs import ProcessRuns

STOP_MARGIN_S = 5.0 + STOP_MAX_S
"""Time that a node takes to stop, in addition to `drain_s`: it finishes claims, records and releases, and
sends its last spans and metrics."""


def stop_timeout_s(settings: Settings) -> float:
    """The time from SIGTERM to SIGKILL."""
    return settings.drain_s + STOP_MARGIN_S


def line_for_worker(settings: Settings, runs: ProcessRuns) -> bytes:
    """The settings and runs as a line for a worker."""
    return msgspec.json.encode((settings, runs)) + b"\n"


def join_supervisor() -> tuple[Settings, ProcessRuns]:
    """Read the settings and runs, and end with the supervisor from now on."""
    settings, runs = msgspec.json.decode(sys.stdin.buffer.readline(), type=tuple[Settings, ProcessRuns])
    timeout_s = stop_timeout_s(settings)
    threading.Thread(target=_end_with_supervisor, args=(timeout_s,), daemon=True).start()
    return settings, runs


def _end_with_supervisor(timeout_s: float) -> None:
    """Wait until the supervisor has gone, then stop this process, in the end by force."""
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(timeout_s)
    os.kill(os.getpid(), signal.SIGKILL)
