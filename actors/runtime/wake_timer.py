"""The timer of one actor: it wakes the actor once, at the time that was set last."""

import asyncio
from collections.abc import Callable


class WakeTimer:
    """Calls `wake` at the time that was set."""

    __slots__ = ("_at", "_handle", "_wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    @property
    def is_set(self) -> bool:
        """True if it will wake."""
        return self._handle is not None

    def set(self, at: float, now: float) -> None:
        """Ring at the time `at`, and at no other."""
        if self._handle is not None:
            if self._at == at:
                return
            self._handle.cancel()
        self._at = at
        self._handle = asyncio.get_running_loop().call_later(max(0.0, at - now), self._due)

    def cancel(self) -> None:
        """Do not wake."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _due(self) -> None:
        self._handle = None
        self._wake()
