"""The figures of the last seconds: read once for all who ask, and whole, however a reading ends."""

import asyncio

import pytest

from actors.machine import facts as f
from actors.machine.numbering import Numbered
from angarium.operations.receiver_list.throughput import RecentCounts
from streams.journal_feed.recent_flushes import RecentFlush, RecentFlushes
from tests.support.waiting import until

RECEIVER = "acme.billing"


class ScriptedFlushes(RecentFlushes):
    """Reads that return one flush each, once they are let go."""

    def __init__(self) -> None:
        self.since, self.now = 0.0, 10.0
        self.readings = self.begun_again = 0
        self.go = asyncio.Event()

    async def read_new(self) -> list[RecentFlush]:
        self.readings += 1
        await self.go.wait()
        event = Numbered(position=self.readings, sequence=1, id="a", stored_at=0.0)
        fact = f.Delivered(receiver=RECEIVER, events=(event,), at=1.0, attempt=1, latency_ms=1.0)
        return [RecentFlush(5.0, (fact,))]

    def begin_again(self) -> None:
        self.begun_again += 1


@pytest.fixture
def flushes() -> ScriptedFlushes:
    return ScriptedFlushes()


async def test_all_who_ask_share_one_reading(flushes: ScriptedFlushes) -> None:
    recent_counts = RecentCounts(flushes, kept_for_s=3600.0)
    asking = [asyncio.create_task(recent_counts.read_on()) for _ in range(5)]
    await until(lambda: flushes.readings == 1)
    flushes.go.set()
    await asyncio.gather(*asking)
    await recent_counts.read_on()
    assert flushes.readings == 1
    assert recent_counts.counts[RECEIVER].settled == 1
    assert recent_counts.last_at == {RECEIVER: 5.0}
    assert recent_counts.span_s == 10.0


async def test_old_figures_are_read_again(flushes: ScriptedFlushes) -> None:
    flushes.go.set()
    recent_counts = RecentCounts(flushes)
    for settled in (1, 2):
        await recent_counts.read_on()
        assert recent_counts.counts[RECEIVER].settled == settled
    assert flushes.readings == 2


async def test_a_reading_that_was_given_up_counts_for_nothing(flushes: ScriptedFlushes) -> None:
    """One who gives up takes nothing from the others: they read the whole span once more."""
    recent_counts = RecentCounts(flushes, kept_for_s=3600.0)
    first, second = (asyncio.create_task(recent_counts.read_on()) for _ in range(2))
    await until(lambda: flushes.readings == 1)
    first.cancel()
    await until(lambda: flushes.readings == 2)
    flushes.go.set()
    await second
    assert flushes.begun_again == 1
    assert recent_counts.counts[RECEIVER].positions == {2}
