"""The two clocks that ownership needs, as a port, so that a test and the simulator can turn them.

Everything else takes its time from the running event loop.
"""

import time
from functools import partial
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux goes on counting on it while the machine sleeps, as CLOCK_MONOTONIC does on macOS."""


class Timekeeper(Protocol):
    def wall(self) -> float:
        """Seconds since the epoch; it may be set, and jump."""

    def boottime(self) -> float:
        """Seconds since some moment; it never jumps, and counts a suspended process or machine too."""


class SystemTime:
    """The clocks of this machine, with nothing of ours in between: each delivery reads them several times."""

    wall = staticmethod(time.time)
    boottime = staticmethod(partial(time.clock_gettime, _BOOTTIME))
