"""Reading one receiver's backlog: all of it, in order, even from a lagging replica."""

import asyncio
from typing import Any

import pytest

from actors.errors import Unavailable
from actors.ports import BacklogPage, ShardPage
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.reading.backlog import PAGE_BYTES_MAX, Backlog
from tests.contract.support.faults import up_to
from tests.contract.support.jetstream_proxy import Call, JetStreamProxy
from tests.support.installation import publish, shard
from tests.support.waiting import until

RECEIVER, OTHER = "acme.billing", "acme.other"


def of(js: JetStream, names: Names, receiver: str = RECEIVER) -> Backlog:
    return Backlog(js, names, shard(receiver), asyncio.Semaphore(2))


def positions(batch: BacklogPage) -> list[int]:
    return [event.position for event in batch.events]


class Lagging(JetStreamProxy):
    """Direct gets are answered by a replica that has nothing beyond `end`."""

    end = 0

    async def around(self, method: str, call: Call, *_: Any, **options: Any) -> Any:
        return up_to(await call(), self.end) if method == "read" else await call()


async def test_only_a_receivers_own_events_are_read_and_in_order(js: JetStream, names: Names) -> None:
    for number in range(6):
        await publish(js, names, (RECEIVER, OTHER)[number % 2], b"%d" % number)
    batch = await of(js, names).read(RECEIVER, 0, 6, 100)
    assert [(event.position, event.body) for event in batch.events] == [(1, b"0"), (3, b"2"), (5, b"4")]
    assert not batch.complete
    assert await of(js, names).read(RECEIVER, 5, 6, 100) == BacklogPage(events=[], complete=True)


async def test_events_of_a_shard_are_read_with_their_receivers(js: JetStream, names: Names) -> None:
    """Events for impossible receiver names are read as well."""
    others = [f"acme.x{number}" for number in range(1000)]
    same = next(each for each in others if shard(each) == shard(RECEIVER))
    odd = next(
        each for each in (f"acme._{number}" for number in range(1000)) if shard(each) == shard(RECEIVER)
    )
    other = next(each for each in others if shard(each) != shard(RECEIVER))
    for receiver in (RECEIVER, other, same, odd, same):
        await publish(js, names, receiver)
    backlog = of(js, names)
    found = await backlog.read_all(0, 4, 100)
    assert [(receiver, event.position) for receiver, event in found.events] == [
        (RECEIVER, 1), (same, 3), (odd, 4), (same, 5),
    ]  # fmt: skip
    assert found.complete
    assert [bool(event.malformed) for _, event in found.events] == [False, False, True, False]
    assert await backlog.read_all(5, 6, 100) == ShardPage(events=[], complete=True)
    found = await backlog.read_all(1, 5, 1)
    assert ([event.position for _, event in found.events], found.complete) == ([3], False)


async def test_a_read_begins_above_what_was_read_and_ends_at_its_bound(js: JetStream, names: Names) -> None:
    for _ in range(10):
        await publish(js, names, RECEIVER)
    backlog = of(js, names)
    first = await backlog.read(RECEIVER, 0, 10, 4)
    assert (positions(first), first.complete) == ([1, 2, 3, 4], False)
    second = await backlog.read(RECEIVER, 4, 10, 100)
    assert (positions(second), second.complete) == ([5, 6, 7, 8, 9, 10], True)


async def test_a_read_is_complete_when_it_reached_what_was_seen(js: JetStream, names: Names) -> None:
    for _ in range(4):
        await publish(js, names, RECEIVER)
    batch = await of(js, names).read(RECEIVER, 0, 3, 3)
    assert (positions(batch), batch.complete) == ([1, 2, 3], True)


async def test_a_page_holds_about_a_mebibyte(js: JetStream, names: Names) -> None:
    for _ in range(8):
        await publish(js, names, RECEIVER, bytes(200 << 10))
    batch = await of(js, names).read(RECEIVER, 0, 8, 100)
    assert 1 <= len(batch.events) <= PAGE_BYTES_MAX // (200 << 10) + 1
    assert not batch.complete


async def test_an_event_larger_than_a_page_is_read(js: JetStream, names: Names) -> None:
    await publish(js, names, RECEIVER, bytes(256 << 10))
    assert positions(await of(js, names).read(RECEIVER, 0, 1, 1)) == [1]


async def test_a_receiver_without_events_is_complete_at_once(js: JetStream, names: Names) -> None:
    await publish(js, names, OTHER)
    assert await of(js, names).read(RECEIVER, 0, 1, 10) == BacklogPage(events=[], complete=True)
    assert await of(js, names).read(RECEIVER, 0, 0, 10) == BacklogPage(events=[], complete=True)


async def test_the_leader_has_the_next_event_if_a_replica_lags(js: JetStream, names: Names) -> None:
    for _ in range(4):
        await publish(js, names, RECEIVER)
    lagging = Lagging(js.wire)
    await lagging.start()
    lagging.end = 2
    backlog = of(lagging, names)
    batch = await backlog.read(RECEIVER, 0, 4, 100)
    assert (positions(batch), batch.complete) == ([1, 2], False)
    batch = await backlog.read(RECEIVER, 2, 4, 100)
    assert (positions(batch), batch.complete) == ([3], False)
    batch = await backlog.read(RECEIVER, 3, 4, 100)
    assert (positions(batch), batch.complete) == ([4], True)
    await lagging.stop()


async def test_a_message_that_the_leader_does_not_have_either_is_gone(js: JetStream, names: Names) -> None:
    for _ in range(3):
        await publish(js, names, RECEIVER)
    await publish(js, names, OTHER)
    await js.purge(names.deliveries, 4)
    backlog = of(js, names)
    assert await backlog.read(RECEIVER, 0, 3, 10) == BacklogPage(events=[], complete=True)
    assert await backlog.event(RECEIVER, 2) is None


async def test_an_event_is_found_by_its_position_unless_it_is_another_receivers(
    js: JetStream, names: Names
) -> None:
    await publish(js, names, RECEIVER, b"one", {"Nats-Msg-Id": "id"})
    backlog = of(js, names)
    event = await backlog.event(RECEIVER, 1)
    assert event is not None
    assert (event.id, event.body) == ("id", b"one")
    assert await of(js, names, OTHER).event(OTHER, 1) is None
    assert await backlog.event(RECEIVER, 2) is None


async def test_messages_above_a_position_are_counted(js: JetStream, names: Names) -> None:
    for number in range(7):
        await publish(js, names, OTHER if number == 3 else RECEIVER, bytes(2000))
    backlog = of(js, names)
    assert [await backlog.count(RECEIVER, after) for after in (0, 2, 4, 6, 7, 100)] == [6, 4, 3, 1, 0, 0]
    assert await of(js, names, OTHER).count(OTHER, 0) == 1
    assert await backlog.count("acme.nobody", 0) == 0


async def test_without_a_stream_the_answer_is_unavailable(js: JetStream, prefix: str) -> None:
    backlog = of(js, Names(prefix))
    with pytest.raises(Unavailable):
        await backlog.event(RECEIVER, 1)
    with pytest.raises(Unavailable):
        await backlog.read(RECEIVER, 0, 1, 1)


async def test_readers_wait_for_one_another(js: JetStream, names: Names) -> None:
    await publish(js, names, RECEIVER)
    readers = asyncio.Semaphore(1)
    backlog = Backlog(js, names, shard(RECEIVER), readers)
    await readers.acquire()
    read = asyncio.ensure_future(backlog.read(RECEIVER, 0, 1, 1))
    assert await of(js, names).count(RECEIVER, 0) == 1
    assert not read.done()
    readers.release()
    await until(read.done)
    assert positions(read.result()) == [1]


@pytest.mark.parametrize("others", [True, False])
async def test_after_a_purge_nothing_is_stored_since_any_time(
    js: JetStream, names: Names, others: bool
) -> None:
    """The answer also holds for a replicated stream, in which the leader's word is not enough."""
    for _ in range(3):
        await publish(js, names, RECEIVER)
    if others:
        await publish(js, names, OTHER)
    await js.purge(names.deliveries, 4)
    replicated = Backlog(js, names, shard(RECEIVER), asyncio.Semaphore(2), replicated=True)
    assert await replicated.first_since(RECEIVER, 0.0) is None
    position = await publish(js, names, RECEIVER)
    assert await replicated.first_since(RECEIVER, 0.0) == position
