"""Relaxed order at a real receiver: as many at once as it allows, whatever happens to single events."""

import asyncio
from functools import partial

import pytest

from tests.support.fleet.fleet import Fleet
from tests.support.fleet.load import CONCURRENCY, Load
from tests.support.fleet.records import Record
from tests.support.fleet.sink import Held, Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_relaxed_receiver_gets_as_many_at_once_as_it_asked_for(shared_fleet: Fleet) -> None:
    fleet, receiver = shared_fleet, "t.wide"
    all_there = asyncio.Event()
    fleet.sink.manners[receiver] = lambda _: Held(all_there)
    await fleet.configure([receiver], order="relaxed", concurrency=32)
    load = Load(fleet, [receiver])
    load.records[0].wide = 32
    await load.publish(160)
    await fleet.until(lambda: fleet.sink.unanswered[receiver] == 32, "as many are under way")
    all_there.set()
    await load.arrived()
    load.check()
    assert max(each.in_flight for each in load.records[0].arrivals) == 31


async def test_one_event_that_fails_stops_no_other(shared_fleet: Fleet) -> None:
    fleet, receiver = shared_fleet, "t.patient"
    fleet.sink.manners[receiver] = lambda number: Reply(status=503 if number == 1 else 200)
    retry = {"base_s": 3600, "cap_s": 3600}
    await fleet.configure([receiver], order="relaxed", concurrency=1, retry=retry)
    load = Load(fleet, [receiver])
    await load.publish(100)
    record = load.records[0]
    await fleet.until(lambda: len(record.arrivals) == 100, "all were tried once")
    assert {each.sequence for each in record.arrivals if each.accepted} == set(range(2, 101))
    shown = await fleet.ask("inspect", receiver)
    assert (shown["settled_sequence"], shown["next_sequence"], shown["backlog"]) == (0, 101, 1)
    await fleet.ask("resume", receiver)
    await load.arrived()


async def test_the_order_changes_while_work_is_under_way(shared_fleet: Fleet) -> None:
    fleet, receiver = shared_fleet, "t.changing"
    fleet.sink.manners[receiver] = lambda number: Reply(status=200 if number % 20 else 503, delay_s=0.01)
    soon = {"base_s": 0.05, "cap_s": 0.05}
    await fleet.configure([receiver], retry=soon)
    load = Load(fleet, [receiver], [receiver])
    record = load.records[0]
    await load.publish(300)
    for order in ("relaxed", "strict", "relaxed", "strict"):
        await fleet.until(partial(_reaches, record, len(record.arrivals) + 50), "some more arrived")
        await fleet.configure([receiver], order=order, concurrency=CONCURRENCY, retry=soon)
    await load.arrived()
    assert max(each.in_flight for each in record.arrivals) == CONCURRENCY - 1
    await fleet.configure([receiver], retry=soon, headers={"x-strict": "again"})

    async def in_force() -> bool:
        await load.publish(1)
        await load.arrived()
        return "x-strict" in fleet.sink.latest[receiver].headers

    await fleet.until_true(in_force, "the last change is in force")
    count = len(record.published)
    await load.publish(20)
    await load.arrived()
    load.check()
    strict = [each.sequence for each in record.arrivals if each.accepted and each.sequence > count]
    assert strict == [*range(count + 1, count + 21)]


def _reaches(record: Record, count: int) -> bool:
    return len(record.arrivals) >= count
