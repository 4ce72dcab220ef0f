"""Cached values: one reading for all viewers, the last value meanwhile, and rests between readings."""

import asyncio

import pytest

from actors.errors import Unavailable
from angarium.console import cached_values
from angarium.console.cached_values import CachedValue, CachedValues
from tests.support.waiting import until


class Source:
    """A source that is read when it is let go, and counts its readings."""

    def __init__(self) -> None:
        self.readings = 0
        self.go = asyncio.Event()
        self.fails = False

    async def read(self) -> int:
        self.readings += 1
        await self.go.wait()
        if self.fails:
            raise Unavailable("NATS is away")
        return self.readings


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def values(source: Source, monkeypatch: pytest.MonkeyPatch) -> CachedValues[str, int]:
    monkeypatch.setattr(cached_values, "FRESH_FOR_S", 0.0)
    monkeypatch.setattr(cached_values, "REST_FACTOR", 0)
    return CachedValues(lambda key: source.read)


async def test_viewers_share_one_reading(source: Source, values: CachedValues[str, int]) -> None:
    asking = [asyncio.create_task(values.get("")) for _ in range(10)]
    await until(lambda: source.readings == 1)
    source.go.set()
    assert await asyncio.gather(*asking) == [CachedValue(1)] * 10
    assert source.readings == 1


async def test_a_viewer_does_not_wait_for_long(source: Source, values: CachedValues[str, int]) -> None:
    assert await values.get("", wait_s=0.0) == CachedValue(None)
    source.go.set()
    await until(lambda: source.readings == 1)
    assert await values.get("") == CachedValue(1)
    source.go.clear()
    assert await values.get("") == CachedValue(1)
    assert source.readings == 2
    values.stop()


async def test_a_reading_that_fails_keeps_the_last_value(
    source: Source, values: CachedValues[str, int]
) -> None:
    source.go.set()
    await values.get("")
    source.fails = True
    assert await values.get("") == CachedValue(1, "NATS is away")
    source.fails = False
    assert await values.get("") == CachedValue(3)


async def test_a_reading_is_followed_by_a_rest(
    source: Source, values: CachedValues[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_values, "FRESH_FOR_S", 3600.0)
    source.go.set()
    assert [await values.get("") for _ in range(3)] == [CachedValue(1)] * 3
    assert await values.get("another") == CachedValue(2)


async def test_keys_that_were_not_asked_for_lately_are_dropped(
    source: Source, values: CachedValues[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_values, "FRESH_FOR_S", 3600.0)
    monkeypatch.setattr(cached_values, "KEYS_MAX", 2)
    source.go.set()
    for key in ("a", "b", "a", "c", "a", "b"):
        await values.get(key)
    assert source.readings == 4
