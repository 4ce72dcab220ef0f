"""Load of the event loop: the share of time in which its thread runs or waits for a core.

Its CPU time alone proves nothing: if other processes take half of the cores, a loop that never sleeps gets
only the other half. Late timers prove nothing either: such a loop may reach each within half a millisecond.
"""

import time
from pathlib import Path

SAMPLE_EVERY_S = 0.01
SATURATED_SHARE = 0.8

_SCHEDULING = Path("/proc/thread-self/schedstat")


class ThreadLoad:
    """Load of the calling thread; each call covers the time since the last one, 10 ms at least."""

    def __init__(self) -> None:
        self._at, self._busy_s = time.monotonic(), _busy_s()
        self._saturated = False

    def __call__(self) -> bool:
        """True if the thread had something to do for four fifths of the time, or more."""
        now = time.monotonic()
        if (passed := now - self._at) >= SAMPLE_EVERY_S:
            busy_s = _busy_s()
            self._saturated = busy_s - self._busy_s >= SATURATED_SHARE * passed
            self._at, self._busy_s = now, busy_s
        return self._saturated


def _busy_s() -> float:
    """Seconds that the thread ran, or could have run and had no core (Linux: sched-stats.rst)."""
    ran_s = time.thread_time()
    try:
        _, waited_ns, _ = _SCHEDULING.read_bytes().split()
    except OSError:  # Not Linux, or one that does not count it.
        return ran_s
    return ran_s + int(waited_ns) / 1e9
