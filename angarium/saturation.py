"""Whether the event loop has time to spare: the CPU that its thread takes, beside the time that passes.

How late timers are does not tell: a loop that never sleeps may come to each of them within half a
millisecond.
"""

import time

SAMPLE_S = 0.01
SATURATED = 0.8


class Saturation:
    """Of the thread that asks; to be called, it looks at the time since the last look, 10 ms at least."""

    def __init__(self) -> None:
        self._at, self._used = time.monotonic(), time.thread_time()
        self._saturated = False

    def __call__(self) -> bool:
        """Whether the thread took four fifths of a core, or more."""
        now = time.monotonic()
        if (passed := now - self._at) >= SAMPLE_S:
            used = time.thread_time()
            self._saturated = used - self._used >= SATURATED * passed
            self._at, self._used = now, used
        return self._saturated
