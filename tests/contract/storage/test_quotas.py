"""Quotas with messages of different sizes: nothing within a quota goes, and no tenant pays for another."""

import random
from collections import Counter

import pytest
from msgspec.structs import replace

from streams.installation.topology import Names
from streams.nats.answers import Stored, StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.nats.wire_names import EVENT_TYPE
from streams.storage import quotas
from streams.storage.eviction import EvictionOrder, eviction_order, samples_of
from streams.storage.quotas import SettledPrefixes, beyond_quota, drop_letters_beyond
from tests.support.installation import publish

EVENTS = 1000
LARGE, SMALL = b"x" * 60_000, b"x" * 100


@pytest.fixture(params=["counted", "estimated"])
def _counting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tenant has few enough messages to count all of them, or too many."""
    if request.param == "estimated":
        monkeypatch.setattr(quotas, "COUNTED_BYTES_MAX", 0)


async def deliveries_of_others(js: JetStream, names: Names) -> StreamInfo:
    """The deliveries as if other tenants had more in it than any quota."""
    return replace(await stream_info(js, names.deliveries), bytes=1 << 40)


@pytest.mark.usefixtures("_counting")
async def test_no_event_is_evicted_and_no_letter_is_dropped_within_the_quota(
    js: JetStream, names: Names
) -> None:
    """One message in a hundred is large, the first one among them."""
    for number in range(EVENTS):
        body = SMALL if number % 100 else LARGE
        await publish(js, names, "acme.a", body)
        assert isinstance(await js.publish(names.dead("acme.a"), body), Stored)
    for stream in (names.deliveries, names.dead_letters):
        info = await stream_info(js, stream)
        quota = int(1.1 * info.bytes)
        others = replace(info, bytes=1 << 40)
        if stream == names.deliveries:
            assert await beyond_quota(js, names, others, "acme", quota, SettledPrefixes(js)) is None
        else:
            assert await drop_letters_beyond(js, names, others, "acme", quota) == 0


@pytest.mark.usefixtures("_counting")
async def test_no_more_goes_than_exceeds_the_quota(js: JetStream, names: Names) -> None:
    chance = random.Random(1)
    sizes = [chance.randint(100, 4000) for _ in range(EVENTS)]
    for size in sizes:
        await publish(js, names, "acme.a", b"x" * size)
    held = (await stream_info(js, names.deliveries)).bytes
    order = await beyond_quota(
        js, names, await deliveries_of_others(js, names), "acme", held // 2, SettledPrefixes(js)
    )
    assert order is not None
    left = sum(sizes[order.below - 1 :]) + 70 * len(sizes[order.below - 1 :])
    assert 0.95 * held / 2 <= left < 0.9 * held


async def test_a_quota_is_exact_to_the_byte(js: JetStream, names: Names) -> None:
    for _ in range(100):
        await publish(js, names, "acme.a", LARGE[:1000], {EVENT_TYPE: "order.created"})
    each = (await stream_info(js, names.deliveries)).bytes // 100
    info = await deliveries_of_others(js, names)
    for kept in (100, 99, 60):
        order = await beyond_quota(js, names, info, "acme", kept * each + each // 2, SettledPrefixes(js))
        assert order == (EvictionOrder("acme", 101 - kept) if kept < 100 else None)


async def test_the_largest_tenant_is_evicted_even_if_another_has_few_large_events(
    js: JetStream, names: Names
) -> None:
    """Where a stream is cut depends on when it was created: one sampling of a hundred may be wrong."""
    chance, chosen = random.Random(1), Counter[str]()
    for number in range(3000):
        is_rare = chance.random() < 0.003
        await publish(js, names, "rare.a" if is_rare else "small.a", LARGE if is_rare else LARGE[:600])
        if number >= 1000 and number % 100 == 0:
            info = await stream_info(js, names.deliveries)
            for second in range(10):
                sampled = await samples_of(js, names, replace(info, created=f"2026-01-31T12:00:{second:02}Z"))
                order = eviction_order(sampled.samples, 0.1 * info.bytes)
                assert order is not None
                chosen[order.tenant] += 1
    assert chosen["rare"] <= 0.01 * chosen.total(), chosen


async def test_the_backlog_of_receivers_beyond_the_bound_does_not_count(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look all of them up would take thousands of requests; what is left counts in a later round."""
    monkeypatch.setattr(quotas, "RECEIVERS_LOOKED_UP_MAX", 2)
    for number in range(10):
        await publish(js, names, f"acme.r{number % 5}", LARGE[:1000])
    info = await deliveries_of_others(js, names)
    assert await beyond_quota(js, names, info, "acme", 5_000, SettledPrefixes(js)) is None
    assert await beyond_quota(js, names, info, "acme", 3_000, SettledPrefixes(js)) == EvictionOrder("acme", 3)
