"""Events are matched only with configurations that are at most half a second older than the event."""

import asyncio

import pytest

from actors.errors import Unavailable
from streams.nats.jetstream import JetStream
from streams.routing.freshness import CONFIGURATIONS_AGE_MAX_S, Freshness
from tests.contract.support.shards import Clocks
from tests.sim.server import FakeServer
from tests.support.waiting import until


class Bucket:
    """A follower that catches up, at once or when `gate` opens; `refusals` are spent first."""

    def __init__(self) -> None:
        self.asked = 0
        self.refusals = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def catch_up(self) -> None:
        self.asked += 1
        await self.gate.wait()
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("nobody answers")


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
async def freshness(bucket: Bucket, clocks: Clocks) -> Freshness:
    return Freshness(JetStream(FakeServer().connect("test")), bucket.catch_up, clocks)


async def test_the_leader_is_asked_once_for_everything_that_comes_within_half_a_second(
    freshness: Freshness, bucket: Bucket, clocks: Clocks
) -> None:
    assert not freshness.covers(freshness.now())
    for _ in range(5):
        await freshness.cover(freshness.now())
        clocks.turn(CONFIGURATIONS_AGE_MAX_S / 5)
    assert bucket.asked == 1
    clocks.turn(CONFIGURATIONS_AGE_MAX_S / 5)
    assert not freshness.covers(freshness.now())
    await freshness.cover(freshness.now())
    assert bucket.asked == 2


async def test_all_callers_wait_for_the_same_answer(freshness: Freshness, bucket: Bucket) -> None:
    bucket.gate.clear()
    waiting = [asyncio.ensure_future(freshness.cover(freshness.now())) for _ in range(3)]
    await until(lambda: bucket.asked == 1)
    waiting[0].cancel()
    await until(waiting[0].done)
    assert not waiting[1].done()
    bucket.gate.set()
    await asyncio.gather(*waiting[1:])
    assert bucket.asked == 1


async def test_an_answer_to_an_earlier_question_does_not_count(
    freshness: Freshness, bucket: Bucket, clocks: Clocks
) -> None:
    """An answer to a question from before a sleep says nothing about an event from after it."""
    bucket.gate.clear()
    before = asyncio.ensure_future(freshness.cover(freshness.now()))
    await until(lambda: bucket.asked == 1)
    clocks.turn(600.0)
    after = asyncio.ensure_future(freshness.cover(freshness.now()))
    bucket.gate.set()
    await asyncio.gather(before, after)
    assert bucket.asked == 2


async def test_an_event_may_wait_for_its_answer_as_long_as_that_takes(
    freshness: Freshness, bucket: Bucket, clocks: Clocks
) -> None:
    """Otherwise a process that is slow to ask and slow to match would never match anything."""
    came_at = freshness.now()
    bucket.gate.clear()
    covering = asyncio.ensure_future(freshness.cover(came_at))
    await until(lambda: bucket.asked == 1)
    clocks.turn(3.0)
    bucket.gate.set()
    await covering
    assert freshness.covers(came_at)
    assert bucket.asked == 1


async def test_the_leader_is_asked_until_there_is_an_answer(
    freshness: Freshness, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.refusals = 2
    await freshness.cover(freshness.now())
    assert bucket.asked == 3
    assert [record.message for record in caplog.records] == ["routing.waiting"]


async def test_after_stop_it_asks_no_more(freshness: Freshness, bucket: Bucket) -> None:
    await freshness.stop()
    bucket.gate.clear()
    covering = asyncio.ensure_future(freshness.cover(freshness.now()))
    await until(lambda: bucket.asked == 1)
    await freshness.stop()
    await until(covering.done)
    assert covering.cancelled()
