"""The two clocks that ownership needs, as a port, so that tests and the simulator can replace them.

Everything else takes its time from the running event loop.
"""

import time
from functools import partial
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that runs while the machine sleeps, as CLOCK_MONOTONIC does on macOS but not on Linux."""


class Timekeeper(Protocol):
    def wall(self) -> float:
        """Seconds since the epoch; it may be set, and jump."""

    def boottime(self) -> float:
        """Seconds since an arbitrary moment; it never jumps, and runs while process or machine sleep."""


class SystemTime:
    """The clocks of this machine, without a wrapper in between: each delivery reads them several times."""

    wall = staticmethod(time.time)
    boottime = staticmethod(partial(time.clock_gettime, _BOOTTIME))
