"""Warnings of what others can cause as often as they like: few lines, that say how often it was."""

import asyncio
import logging
from typing import Any

EVERY_S = 1.0


class Sparing:
    """Logs the first occurrence at once, then a line a second at most: the latest one, and how many."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self._log, self._name = log, name
        self._fields: dict[str, Any] = {}
        self._count = 0
        self._rests = False

    def __call__(self, **fields: Any) -> None:
        """Take note of one occurrence."""
        self._fields = fields
        self._count += 1
        if not self._rests:
            self._say()

    def _say(self) -> None:
        self._log.warning(self._name, extra=self._fields | {"count": self._count})
        self._count = 0
        self._rests = True
        asyncio.get_running_loop().call_later(EVERY_S, self._rested)

    def _rested(self) -> None:
        self._rests = False
        if self._count:
            self._say()
