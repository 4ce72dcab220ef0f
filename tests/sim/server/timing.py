"""The clock of the server in memory: that of a simulated world, or the real one."""

import asyncio
import time
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any, Protocol

from tests.sim.world.process import EPOCH_S
from tests.sim.world.world import World

GOROUTINE_S = 50e-6
"""Average delay of the work that the server does in the background."""


class Timing(Protocol):
    chance: Random

    def now(self) -> float:
        """Seconds of a clock that only moves forward."""

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch, by the server's clock."""

    def later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Call back after a delay; it cannot be taken back."""

    def aside(self, callback: Callable[..., object], *args: Any) -> None:
        """Call back soon, as another goroutine would, after an unknown number of other things."""


class WorldTiming:
    """`skew_s` is what the server's clock is wrong by."""

    def __init__(self, world: World) -> None:
        self.chance = world.random("server")
        self.skew_s = 0.0
        self._world = world
        self.later = world.after

    def now(self) -> float:
        return self._world.now

    def wall_ns(self) -> int:
        return round((EPOCH_S + self.skew_s) * 1e9) + round(self._world.now * 1e9)

    def aside(self, callback: Callable[..., object], *args: Any) -> None:
        self._world.after(2 * GOROUTINE_S * self.chance.random(), callback, *args)


class LoopTiming:
    """The time of the asyncio loop that runs when the server is asked."""

    chance = Random(0)

    def now(self) -> float:
        return time.monotonic()

    def wall_ns(self) -> int:
        return time.time_ns()

    def later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        asyncio.get_running_loop().call_later(delay_s, callback, *args)

    def aside(self, callback: Callable[..., object], *args: Any) -> None:
        asyncio.get_running_loop().call_soon(callback, *args)


class Alarm:
    """Calls back at the time it was last set to, by `Timing.now`; to be set again each time."""

    def __init__(self, timing: Timing, callback: Callable[[], object]) -> None:
        self._timing = timing
        self._callback = callback
        self._at: float | None = None
        self._armed: float | None = None

    def set(self, at: float | None) -> None:
        """None: do not call back."""
        self._at = at
        if at is not None and (self._armed is None or at < self._armed):
            self._arm(at)

    def _arm(self, at: float) -> None:
        self._armed = at
        self._timing.later(max(0.0, at - self._timing.now()), self._rings, at)

    def _rings(self, armed: float) -> None:
        if self._armed != armed:
            return
        self._armed = None
        if self._at is None:
            return
        if self._at > self._timing.now() + 1e-9:
            self._arm(self._at)
        else:
            self._at = None
            self._callback()


def rfc3339(nanoseconds: int) -> str:
    """Formats an instant like Go: without trailing zeros."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{_to_the_second(seconds)}{f'.{rest:09}'.rstrip('0') if rest else ''}Z"


@lru_cache
def _to_the_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
