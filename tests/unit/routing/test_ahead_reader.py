"""Reading ahead of a flood: when a page is taken, whose events are read, and how often."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from actors.errors import Unavailable
from streams.installation.partitions import partition_of
from streams.nats.answers import StoredMessage
from streams.routing.ahead_reader import (
    BEHIND_MIN,
    IDLE_READS_PER_S,
    LISTED_FOR_S,
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    READS_AT_ONCE,
    READS_PER_S_MAX,
    UNMATCHED_BYTES_MIN,
    AheadReader,
)
from streams.routing.parked_tenants_reader import PAGE_BYTES_MAX
from streams.routing.read_requests import NO_END, PartitionReads, ReadRequest
from tests.unit.routing.made_up_events import NAMES, PARTITION, MadeUpEvents, TrustedReader
from tests.unit.worlds.virtual_time import in_virtual_time

COUNT_MAX = 10
MANY = 1000
SOON_S = 2 * PAUSE_MIN_S
"""Longer than it takes to read each of a few tenants once."""


class ReadingAhead:
    """The reading ahead in one of `partitions`: all events of a tenant, until they are taken.

    - `tenants`: those that have receivers.
    - `taken`: the positions that were taken, by tenant.
    """

    def __init__(self, events: MadeUpEvents, tenants: Sequence[str], partitions: int) -> None:
        self.events = events
        self.tenants = tenants
        self.trusted = TrustedReader()
        self.taken: dict[str, list[int]] = {}
        self.reader = AheadReader(
            PartitionReads(
                events.as_jetstream(),
                NAMES,
                PARTITION,
                self.trusted.as_reader(),
                asyncio.Semaphore(10 * READS_AT_ONCE),
                pytest.fail,
            ),
            tenants=lambda: self.tenants,
            partitions=partitions,
            next_ahead=self._next,
            take_ahead=self._take,
        )

    def _next(self, tenant: str) -> ReadRequest | None:
        return None if tenant in self.taken else ReadRequest(tenant, 0, NO_END, COUNT_MAX)

    def _take(self, request: ReadRequest, found: Sequence[StoredMessage]) -> None:
        assert request.tenant not in self.taken
        self.taken[request.tenant] = [each.position for each in found]

    def fall_behind(self) -> None:
        self.reader.arrived(BEHIND_MIN + 1, True)

    @property
    def reads_of(self) -> Counter[str]:
        return Counter(each.tenant for each in self.events.reads)


@asynccontextmanager
async def reading_ahead(
    events: MadeUpEvents, *tenants: str, partitions: int = 0
) -> AsyncIterator[ReadingAhead]:
    """Reads ahead of a flood; all tenants are of its partition, unless a number of partitions is given."""
    with pytest.MonkeyPatch.context() as patch:
        if not partitions:
            patch.setattr("streams.installation.partitions.partition_of", lambda *_: PARTITION)
        ahead = ReadingAhead(events, tenants, partitions)
        ahead.reader.start()
        ahead.fall_behind()
        yield ahead
        await ahead.reader.stop()


# ---- what is taken


@in_virtual_time
async def test_a_page_is_taken_once_an_event_has_arrived_after_it() -> None:
    """Only that proves that the consumer is of the same stream as the page."""
    async with reading_ahead(MadeUpEvents("acme", "beta", "beta"), "beta") as ahead:
        await asyncio.sleep(10 * PAUSE_MAX_S)
        assert (ahead.reads_of, ahead.taken) == ({"beta": 1}, {})
        ahead.fall_behind()
        await asyncio.sleep(SOON_S)
        assert ahead.taken == {"beta": [2, 3]}


@in_virtual_time
async def test_a_page_is_dropped_if_another_consumer_hands_the_next_event_out() -> None:
    async with reading_ahead(MadeUpEvents("beta"), "beta") as ahead:
        await asyncio.sleep(SOON_S)
        ahead.trusted.trusted_consumer = 2
        ahead.fall_behind()
        await asyncio.sleep(SOON_S)
        assert (ahead.reads_of, ahead.taken) == ({"beta": 2}, {})
        ahead.fall_behind()
        await asyncio.sleep(SOON_S)
        assert ahead.taken == {"beta": [1]}


@in_virtual_time
async def test_nothing_is_read_ahead_before_the_stream_was_compared() -> None:
    async with reading_ahead(MadeUpEvents("beta"), "beta") as ahead:
        ahead.trusted.trusted_consumer = None
        await asyncio.sleep(10 * PAUSE_MAX_S)
        assert ahead.events.reads == []


# ---- whose events are read, and when


@in_virtual_time
async def test_nothing_is_read_ahead_without_a_flood_or_a_router_that_is_behind() -> None:
    async with reading_ahead(MadeUpEvents(), "beta") as ahead:
        ahead.reader.arrived(BEHIND_MIN, True)
        ahead.reader.arrived(BEHIND_MIN + 1, False)
        await asyncio.sleep(10 * PAUSE_MAX_S)
        assert ahead.events.reads == []
        ahead.fall_behind()
        await asyncio.sleep(SOON_S)
        assert ahead.reads_of["beta"]


@in_virtual_time
async def test_large_unwanted_events_are_a_flood_until_the_router_has_caught_up() -> None:
    async with reading_ahead(MadeUpEvents(), "beta") as ahead:
        ahead.reader.arrived(BEHIND_MIN, False)
        ahead.reader.unmatched(UNMATCHED_BYTES_MIN - 1)
        ahead.reader.arrived(BEHIND_MIN + 1, False)
        await asyncio.sleep(10 * PAUSE_MAX_S)
        assert ahead.events.reads == []
        ahead.reader.unmatched(1)
        ahead.reader.arrived(BEHIND_MIN + 1, False)
        await asyncio.sleep(SOON_S)
        assert ahead.reads_of["beta"]
        ahead.reader.arrived(BEHIND_MIN, False)
        ahead.reader.arrived(BEHIND_MIN + 1, False)
        await asyncio.sleep(PAUSE_MAX_S)
        before = len(ahead.events.reads)
        await asyncio.sleep(10 * PAUSE_MAX_S)
        assert len(ahead.events.reads) == before


@in_virtual_time
async def test_reading_ahead_ends_when_the_router_has_caught_up() -> None:
    async with reading_ahead(MadeUpEvents(), "beta") as ahead:
        await asyncio.sleep(SOON_S)
        ahead.reader.arrived(BEHIND_MIN, True)
        await asyncio.sleep(PAUSE_MAX_S)
        before = len(ahead.events.reads)
        assert before
        await asyncio.sleep(10 * PAUSE_MAX_S)
        assert len(ahead.events.reads) == before


@in_virtual_time
async def test_tenants_of_other_partitions_are_not_read_ahead() -> None:
    names, partitions = [f"t{number}" for number in range(40)], PARTITION + 1
    here = [each for each in names if partition_of(each, partitions) == PARTITION]
    async with reading_ahead(MadeUpEvents(), *names, partitions=partitions) as ahead:
        await asyncio.sleep(1)
        assert set(ahead.reads_of) == set(here)
        assert len(here) < len(names)


@pytest.mark.parametrize("before", [(), ("beta",)])
@in_virtual_time
async def test_a_tenant_that_comes_during_a_read_is_read_at_the_next_listing(
    before: tuple[str, ...],
) -> None:
    async with reading_ahead(MadeUpEvents(), *before) as ahead:
        await asyncio.sleep(1)
        ahead.tenants = [*before, "cora"]
        await asyncio.sleep(LISTED_FOR_S / 2)
        assert not ahead.reads_of["cora"]
        await asyncio.sleep(LISTED_FOR_S / 2)
        assert ahead.reads_of["cora"]


@in_virtual_time
async def test_a_tenant_that_cannot_be_read_ahead_now_is_read_again() -> None:
    def fail_once() -> None:
        if len(ahead.events.reads) == 1:
            raise Unavailable("nobody answers")

    async with reading_ahead(MadeUpEvents("beta"), "beta") as ahead:
        ahead.events.before_answer = fail_once
        await asyncio.sleep(10 * PAUSE_MAX_S)
        assert ahead.reads_of == {"beta": 2}


# ---- bounds


@in_virtual_time
async def test_a_read_ahead_takes_no_more_than_the_tenant_has_room_for() -> None:
    async with reading_ahead(MadeUpEvents("beta"), "beta") as ahead:
        await asyncio.sleep(SOON_S)
        (read,) = ahead.events.reads
        assert (read.count_max, read.bytes_max) == (COUNT_MAX, PAGE_BYTES_MAX)


@in_virtual_time
async def test_a_tenant_that_publishes_nothing_is_read_less_and_less_often() -> None:
    async with reading_ahead(MadeUpEvents(), "beta") as ahead:
        await asyncio.sleep(LISTED_FOR_S / 2)
        times = [each.at for each in ahead.events.reads]
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert pauses[:4] == pytest.approx(
            [2 * PAUSE_MIN_S, PAUSE_MAX_S, PAUSE_MAX_S, PAUSE_MAX_S], abs=READS_AT_ONCE / READS_PER_S_MAX
        )
        assert min(pauses[1:]) >= PAUSE_MAX_S * 0.999


@in_virtual_time
async def test_tenants_that_publish_nothing_cost_a_bounded_number_of_reads_a_second() -> None:
    async with reading_ahead(MadeUpEvents(), *(f"t{number}" for number in range(MANY))) as ahead:
        await asyncio.sleep(LISTED_FOR_S)
        late = [each for each in ahead.events.reads if each.at >= LISTED_FOR_S / 2]
        assert 0 < len(late) <= IDLE_READS_PER_S * LISTED_FOR_S / 2 + MANY
        assert set(ahead.reads_of) == set(ahead.tenants)


@in_virtual_time
async def test_a_bounded_number_of_reads_is_under_way_and_begins_in_a_second() -> None:
    async with reading_ahead(MadeUpEvents(), *(f"t{number}" for number in range(MANY))) as ahead:
        await asyncio.sleep(MANY / READS_PER_S_MAX / 2)
        assert 0 < len(ahead.events.reads) <= MANY / 2 + READS_AT_ONCE
        ahead.events.takes_s = 1.0
        await asyncio.sleep(2)
        assert ahead.events.under_way_max == READS_AT_ONCE
