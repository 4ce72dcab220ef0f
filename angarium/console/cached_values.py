"""Values that take a while to read: a page shows the last one, and the next one is read meanwhile.

Pages of many viewers share one reading. What takes long is read less often, so that reading takes a quarter
of the time at most.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from actors.errors import AngariumError

FRESH_FOR_S = 2.0
"""Age up to which a value is not read again."""
REST_FACTOR = 3
"""A reading is followed by a rest of so many times its duration."""
KEYS_MAX = 128
FIRST_WAIT_S = 0.06
"""Time for which a page waits for the first value."""
QUICK_WAIT_S = 0.05
"""Time for which a page waits for a newer value than the one that it has."""

USUAL_REFRESH_S, READING_REFRESH_S = 5, 1
"""Interval at which a page refreshes itself; a shorter one while something is still being read."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class CachedValue(Struct, Generic[V], frozen=True):
    """The last value, None if it is still being read; `problem`: why the last reading failed."""

    value: V | None
    problem: str = ""


def refresh_interval(*shown: CachedValue[Any] | None) -> int:
    """The interval at which a page with these values refreshes itself."""
    is_reading = any(each is not None and each.value is None for each in shown)
    return READING_REFRESH_S if is_reading else USUAL_REFRESH_S


class _Kept(Generic[V]):
    """One key: how it is read, and what was read."""

    def __init__(self, read: Callable[[], Awaitable[V]]) -> None:
        self.read = read
        self.last: CachedValue[V] = CachedValue(None)
        self.rests_until = 0.0
        self.reading: asyncio.Task[None] | None = None


class CachedValues(Generic[K, V]):
    """Values by key; `reader` makes the function that reads one, and fails with an AngariumError."""

    def __init__(self, reader: Callable[[K], Callable[[], Awaitable[V]]]) -> None:
        self._reader = reader
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()

    async def get(self, key: K, *, wait_s: float = FIRST_WAIT_S) -> CachedValue[V]:
        """The last value; a page that is the first to ask waits for it, for a while."""
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(self._reader(key))
            if len(self._kept) > KEYS_MAX:
                _, oldest = self._kept.popitem(last=False)
                _stop(oldest)
        self._kept.move_to_end(key)
        if kept.reading is None and asyncio.get_running_loop().time() >= kept.rests_until:
            kept.reading = asyncio.create_task(self._read(kept))
        if kept.reading is not None:
            is_first = kept.last.value is None
            await asyncio.wait({kept.reading}, timeout=wait_s if is_first else QUICK_WAIT_S)
        return kept.last

    def stop(self) -> None:
        """End all readings."""
        for each in self._kept.values():
            _stop(each)

    async def _read(self, kept: _Kept[V]) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            kept.last = CachedValue(await kept.read())
        except AngariumError as error:
            kept.last = CachedValue(kept.last.value, str(error))
        finally:
            kept.reading = None
            now = loop.time()
            kept.rests_until = now + max(FRESH_FOR_S, REST_FACTOR * (now - began_at))


def _stop(kept: _Kept[V]) -> None:
    if kept.reading is not None:
        kept.reading.cancel()
