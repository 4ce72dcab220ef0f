"""Reading the events of parked tenants: which messages of a page are taken, and when none is."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from streams.nats.answers import StoredMessage
from streams.routing.parked_tenants_reader import PAGE_BYTES_MAX, ParkedTenantsReader
from streams.routing.read_requests import PartitionReads, ReadRequest
from tests.unit.routing.made_up_events import NAMES, PARTITION, MadeUpEvents, TrustedReader
from tests.unit.worlds.virtual_time import in_virtual_time

COUNT_MAX = 10


class Reading:
    """The reading of one part of a tenant's events, which is asked for until something is taken.

    `taken`: the positions that were taken, and whether they were complete.
    """

    def __init__(self, events: MadeUpEvents, request: ReadRequest, read_slots: asyncio.Semaphore) -> None:
        self.events = events
        self.trusted = TrustedReader()
        self.taken: list[tuple[list[int], bool]] = []
        self._request = request
        self.reader = ParkedTenantsReader(
            PartitionReads(
                events.as_jetstream(), NAMES, PARTITION, self.trusted.as_reader(), read_slots, pytest.fail
            ),
            replicated=False,
            next_read=lambda: None if self.taken else self._request,
            take_read=self._take,
        )

    async def _take(self, request: ReadRequest, found: Sequence[StoredMessage], complete: bool) -> None:
        assert request == self._request
        self.taken.append(([each.position for each in found], complete))


@asynccontextmanager
async def reading(
    events: MadeUpEvents,
    up_to: int,
    *,
    above: int = 0,
    count_max: int = COUNT_MAX,
    read_slots: asyncio.Semaphore | None = None,
) -> AsyncIterator[Reading]:
    """Reads events of `acme` in the partition."""
    request = ReadRequest("acme", above, up_to, count_max)
    read = Reading(events, request, read_slots or asyncio.Semaphore(1))
    read.reader.start()
    yield read
    await read.reader.stop()


@in_virtual_time
async def test_events_above_the_last_that_was_requested_are_left_out() -> None:
    """The consumer hands these out: if they were taken here, they would be routed twice."""
    events = MadeUpEvents("acme", "acme", "umbra", "acme", "acme", "acme")
    async with reading(events, 4) as read:
        await asyncio.sleep(1)
        assert read.taken == [([1, 2, 4], True)]


@in_virtual_time
async def test_a_page_that_ends_before_the_last_that_was_requested_is_not_complete() -> None:
    async with reading(MadeUpEvents(*["acme"] * 6), 4, count_max=2) as read:
        await asyncio.sleep(1)
        assert read.taken == [([1, 2], False)]
        assert [(each.above, each.count_max, each.bytes_max) for each in read.events.reads] == [
            (0, 2, PAGE_BYTES_MAX)
        ]


@in_virtual_time
async def test_a_page_is_complete_if_the_stream_has_nothing_up_to_its_requested_end() -> None:
    async with reading(MadeUpEvents("acme", "umbra", "umbra"), 3, above=1) as read:
        await asyncio.sleep(1)
        assert read.taken == [([], True)]


@in_virtual_time
async def test_a_page_read_while_the_reader_doubted_the_stream_is_dropped_and_read_again() -> None:
    """The page may be of a stream that has lost its tail."""
    events = MadeUpEvents("acme", "acme")
    async with reading(events, 2) as read:

        def doubt_once() -> None:
            if len(events.reads) == 1:
                read.trusted.trusted_consumer = 2

        events.before_answer = doubt_once
        await asyncio.sleep(1)
        assert len(events.reads) == 2
        assert read.taken == [([1, 2], True)]


@in_virtual_time
async def test_nothing_is_read_before_the_stream_was_compared() -> None:
    events = MadeUpEvents("acme")
    async with reading(events, 1) as read:
        read.trusted.trusted_consumer = None
        await asyncio.sleep(10)
        assert events.reads == []
        read.trusted.trusted_consumer = 2
        await asyncio.sleep(1)
        assert read.taken == [([1], True)]


@in_virtual_time
async def test_the_reads_of_a_node_take_turns() -> None:
    events, read_slots = MadeUpEvents("acme"), asyncio.Semaphore(1)
    events.takes_s = 1.0
    async with (
        reading(events, 1, read_slots=read_slots) as one,
        reading(events, 1, read_slots=read_slots) as other,
    ):
        await asyncio.sleep(3)
        assert one.taken == other.taken == [([1], True)]
        assert events.under_way_max == 1
