"""Guarantees of a consumer: what pullers get, and how long a consumer in memory exists."""

import json

import pytest

from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.reading.reply_subject import ACK, delivery_info
from tests.contract.support.consumers import (
    MILLISECOND,
    MakeConsumer,
    RawPull,
    acked,
    facts,
    fill,
    handed_out,
)
from tests.support.waiting import until_true


async def test_the_server_numbers_the_messages_of_a_consumer(
    js: JetStream, stream: str, make_consumer: MakeConsumer, raw: RawPull
) -> None:
    await make_consumer(filter_subject=f"{stream}.1")
    await fill(js, stream, 7)
    await raw.ask(batch=3)
    messages = await raw.seen.first(3)
    assert handed_out(messages) == [(1, 1), (4, 2), (7, 3)]
    first = delivery_info(messages[0].reply)
    assert first.pending == 2
    stored = await js.message(stream, 1)
    assert stored is not None
    assert (messages[0].subject, messages[0].data) == (stored.subject, stored.data)
    assert first.stored_at == stored.stored_at


async def test_the_server_ends_a_request_with_what_is_left_of_it(
    js: JetStream, stream: str, make_consumer: MakeConsumer, raw: RawPull
) -> None:
    await make_consumer()
    await raw.ask(no_wait=True, expires=0)
    assert (await raw.status())[:2] == ("404", "No Messages")
    await fill(js, stream, 2)
    await raw.ask(expires=100 * MILLISECOND)
    await raw.next()
    await raw.next()
    status, text, headers = await raw.status()
    assert (status, text, headers["Nats-Pending-Messages"]) == ("408", "Request Timeout", "8")


async def test_the_server_answers_503_if_there_is_no_consumer(raw: RawPull) -> None:
    await raw.ask()
    assert (await raw.status())[0] == "503"


async def test_the_server_says_in_heartbeats_how_far_it_got(
    js: JetStream, stream: str, make_consumer: MakeConsumer, raw: RawPull
) -> None:
    await make_consumer()
    await fill(js, stream, 3)
    await raw.ask(idle_heartbeat=100 * MILLISECOND, expires=500 * MILLISECOND)
    for _ in range(3):
        await raw.next()
    status, text, headers = await raw.status()
    assert (status, text) == ("100", "Idle Heartbeat")
    assert (headers["Nats-Last-Consumer"], headers["Nats-Last-Stream"]) == ("3", "3")


async def test_the_server_hands_out_no_more_than_may_be_unacked(
    js: JetStream, wire: Wire, stream: str, make_consumer: MakeConsumer, raw: RawPull
) -> None:
    await make_consumer(max_ack_pending=3)
    await fill(js, stream, 5)
    await raw.ask()
    messages = await raw.seen.first(3)
    info = await facts(js, stream)
    assert (info.unacked, info.pending, info.delivered, info.ack_floor) == (3, 2, 3, 0)
    await wire.publish(messages[1].reply, ACK)
    assert handed_out(await raw.seen.first(5))[3:] == [(4, 4), (5, 5)]
    await acked(js, stream, floor=2, unacked=3)
    info = await facts(js, stream)
    assert (info.pending, info.ack_floor_consumer) == (0, 2)


async def test_the_server_takes_an_ack_for_all_before_and_an_older_one_for_nothing(
    js: JetStream, wire: Wire, stream: str, make_consumer: MakeConsumer, raw: RawPull
) -> None:
    """Repeating an acknowledgement is therefore always safe."""
    await make_consumer()
    await fill(js, stream, 5)
    await raw.ask(batch=5)
    messages = await raw.seen.first(5)
    for number in (3, 1, 3):
        await wire.publish(messages[number].reply, ACK)
        await acked(js, stream, floor=4, unacked=1)


async def test_the_server_begins_at_a_position_with_number_one(
    js: JetStream, stream: str, make_consumer: MakeConsumer, raw: RawPull
) -> None:
    """The position may even be beyond the end."""
    await fill(js, stream, 3)
    await make_consumer(deliver_policy="by_start_sequence", opt_start_seq=3)
    await raw.ask(batch=1)
    assert handed_out([await raw.next()]) == [(3, 1)]
    await js.consumer_deleted(stream, "c")
    await make_consumer(deliver_policy="by_start_sequence", opt_start_seq=5)
    await raw.ask(batch=1)
    await fill(js, stream, 2)
    assert handed_out([await raw.next()]) == [(5, 1)]


async def test_the_server_forgets_a_consumer_without_requests(
    js: JetStream, stream: str, make_consumer: MakeConsumer, raw: RawPull
) -> None:
    await make_consumer(inactive_threshold=500 * MILLISECOND)

    async def is_gone() -> bool:
        return await js.consumer_info(stream, "c") is None

    await until_true(is_gone)
    await raw.ask()
    assert (await raw.status())[0] == "503"


async def test_the_server_lists_its_consumers(
    js: JetStream, stream: str, make_consumer: MakeConsumer
) -> None:
    assert await js.consumers(stream) == []
    await make_consumer()
    await make_consumer(name="d")
    assert sorted(each.name for each in await js.consumers(stream)) == ["c", "d"]


async def test_the_server_deletes_a_consumer_even_if_no_client_waits_for_that(
    js: JetStream, stream: str, make_consumer: MakeConsumer
) -> None:
    await js.consumer_deleted(stream, "c")
    await make_consumer()
    js.consumer_delete(stream, "c")

    async def is_gone() -> bool:
        return await js.consumer_info(stream, "c") is None

    await until_true(is_gone)


async def test_the_server_hands_out_again_what_is_not_acked_in_time(
    js: JetStream, wire: Wire, stream: str, make_consumer: MakeConsumer, raw: RawPull
) -> None:
    """Redelivered messages come before newer ones, under new numbers: redelivery never defines order."""
    await make_consumer(ack_wait=300 * MILLISECOND, max_ack_pending=3)
    await fill(js, stream, 4)
    await raw.ask()
    messages = await raw.seen.first(3)
    await wire.publish(messages[0].reply, ACK)
    messages = await raw.seen.first(6)
    assert handed_out(messages)[3:] == [(4, 4), (2, 5), (3, 6)]
    assert messages[4].reply.split(".")[4] == "2"  # It was handed out before.


async def test_the_server_creates_the_same_consumer_once(
    js: JetStream, stream: str, make_consumer: MakeConsumer
) -> None:
    made = await make_consumer()
    assert (await make_consumer()).created == made.created
    assert made.config["mem_storage"] is True
    with pytest.raises(ApiError) as refused:
        await make_consumer(max_ack_pending=7)
    assert refused.value.code == 10148


async def test_the_server_reports_when_the_consumer_is_deleted(
    js: JetStream, stream: str, make_consumer: MakeConsumer, raw: RawPull
) -> None:
    await make_consumer()
    await raw.ask()

    async def has_request() -> bool:
        told = await js.request(f"$JS.API.CONSUMER.INFO.{stream}.c", b"")
        return bool(json.loads(told.data)["num_waiting"])

    await until_true(has_request)  # The server takes it in its own time.
    await js.request(f"$JS.API.CONSUMER.DELETE.{stream}.c", b"")
    assert (await raw.status())[:2] == ("409", "Consumer Deleted")
