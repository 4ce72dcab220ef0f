"""Log lines about events that others can cause at will: few lines, which say how often it happened."""

import asyncio
import logging
from typing import Any

LINE_EVERY_S = 1.0


class RateLimitedLog:
    """Logs the first `burst` occurrences at once, then at most one line a second: the latest, and the count.

    A line for one occurrence has no count.

    Each second without a line restores one of the burst.
    """

    def __init__(
        self, log: logging.Logger, name: str, *, burst: int = 1, level: int = logging.WARNING
    ) -> None:
        self._log, self._name, self._level = log, name, level
        self._fields: dict[str, Any] = {}
        self._error: BaseException | None = None
        self._count = 0
        self._burst = self._left = burst

    def __call__(self, error: BaseException | None = None, /, **fields: Any) -> None:
        """Log or count one occurrence; of an `error` with its traceback."""
        self._fields, self._error = fields, error
        self._count += 1
        if self._left:
            if self.is_idle:
                self._refill_later()
            self._say()

    @property
    def is_idle(self) -> bool:
        """True if nothing is left to log and the burst is full, so a new object would behave the same."""
        return self._left == self._burst

    def _say(self) -> None:
        count = {"count": self._count} if self._count > 1 else {}
        self._log.log(self._level, self._name, exc_info=self._error, extra=self._fields | count)
        self._count, self._error = 0, None
        self._left -= 1

    def _refill_later(self) -> None:
        asyncio.get_running_loop().call_later(LINE_EVERY_S, self._refill)

    def _refill(self) -> None:
        self._left += 1
        if self._count:
            self._say()
        if not self.is_idle:
            self._refill_later()
