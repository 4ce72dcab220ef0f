"""The second with which an owner begins to open: no entry may be due before it."""

import math
import time

import pytest

from streams.installation.timed_subjects import EntryAddress
from streams.installation.topology import Names
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.timed.due_publisher import first_second
from streams.timed.entries import CLOCKS_DIFFER_MAX_S
from tests.contract.support.routers import PARTITION, TENANT

WEEK_S = 7 * 86_400.0


async def put_an_entry(js: JetStream, names: Names) -> None:
    address = EntryAddress(PARTITION, int(time.time()), TENANT, "x", 1)
    assert isinstance(await js.publish(names.timed_subjects.entry(address), b"{}"), Stored)


async def test_an_owner_begins_now_if_nothing_waits(js: JetStream, names: Names) -> None:
    assert await first_second(js, names, WEEK_S, lambda: 1_000.0) == 1_000


@pytest.mark.parametrize("age_s", [WEEK_S, math.inf])
async def test_an_owner_begins_as_early_as_an_event_may_have_been_published(
    js: JetStream, names: Names, age_s: float
) -> None:
    """The event of the oldest entry may be as old as events are kept, or as the streams."""
    before = time.time()
    await put_an_entry(js, names)
    first = await first_second(js, names, age_s, time.time)
    oldest = time.time() if age_s == math.inf else before - WEEK_S
    assert oldest - 60.0 - CLOCKS_DIFFER_MAX_S < first <= time.time() - CLOCKS_DIFFER_MAX_S


async def test_an_owner_whose_clock_is_behind_begins_with_its_own_time(js: JetStream, names: Names) -> None:
    await put_an_entry(js, names)
    assert await first_second(js, names, WEEK_S, lambda: 1_000.0) == 1_000
