"""Logs one line, with a count, when many parts of a process would log the same cause.

If nats-server hangs, each of the 128 readers of a node misses its heartbeats at about the same time,
and for the same reason.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

GATHERED_FOR_S = 2.0
"""Time from the first occurrence until the line: readers notice the same cause over two ticks of 1.5 s."""

_NUMBERS = re.compile(r"[-\d]+")
"""The parts in which the reasons of one cause may differ: numbers, also in the names of consumers."""


class _Gathered(Struct):
    level: int
    fields: dict[str, Any]
    count: int = 0


class GatheredLog:
    """Gathers occurrences of one event for one reason, and logs them as one line.

    - `explained`: true if a line that was logged meanwhile explains what is only information, which is then
      logged at level debug.
    """

    def __init__(self, explained: Callable[[], bool]) -> None:
        self._explained = explained
        self._gathered: dict[tuple[logging.Logger, str, str], _Gathered] = {}

    def __call__(self, log: logging.Logger, level: int, event: str, why: str, **fields: Any) -> None:
        """Count an occurrence; the line has the fields and the reason of the first one."""
        key = log, event, _NUMBERS.sub("", why)
        gathered = self._gathered.get(key)
        if gathered is None:
            gathered = self._gathered[key] = _Gathered(level, fields | {"why": why})
            asyncio.get_running_loop().call_later(GATHERED_FOR_S, self._log_line, key)
        gathered.count += 1

    def flush(self) -> None:
        """Log what was gathered so far."""
        for key in list(self._gathered):
            self._log_line(key)

    def _log_line(self, key: tuple[logging.Logger, str, str]) -> None:
        gathered = self._gathered.pop(key, None)
        if gathered is None:
            return  # It was flushed.
        log, event, _ = key
        count = {"count": gathered.count} if gathered.count > 1 else {}
        is_explained = gathered.level < logging.WARNING and self._explained()
        log.log(logging.DEBUG if is_explained else gathered.level, event, extra=gathered.fields | count)
