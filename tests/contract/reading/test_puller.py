"""The pull loop and a real consumer; see also `test_puller_scripted.py`."""

import pytest

from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.reading import pull, pull_room
from tests.contract.support.consumers import (
    MakeConsumer,
    RawPull,
    TakeUp,
    acked,
    facts,
    fill,
    handed_out,
)
from tests.support.waiting import KeptMessages


async def test_everything_is_handed_on_in_order(
    js: JetStream, wire: Wire, stream: str, make_consumer: MakeConsumer, take_up: TakeUp
) -> None:
    await make_consumer()
    await fill(js, stream, 50)
    hand = await take_up(batch=10)
    await hand.seen.first(50)
    await fill(js, stream, 50)
    messages = await hand.seen.first(100)
    assert handed_out(messages) == [(n, n) for n in range(1, 101)]
    assert hand.gaps == []


async def test_an_ack_covers_all_up_to_a_position(
    js: JetStream, stream: str, make_consumer: MakeConsumer, take_up: TakeUp
) -> None:
    await make_consumer(filter_subject=f"{stream}.1")
    await fill(js, stream, 12)
    hand = await take_up(batch=10)
    await hand.seen.first(4)
    hand.puller.ack(9)
    await acked(js, stream, floor=7, unacked=1)
    hand.puller.ack(8)
    hand.puller.ack(12)
    await acked(js, stream, floor=10, unacked=0)


async def test_expired_requests_are_repeated(
    js: JetStream,
    stream: str,
    make_consumer: MakeConsumer,
    take_up: TakeUp,
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pull, "REQUEST_EXPIRES_S", 0.25)
    monkeypatch.setattr(pull, "IDLE_HEARTBEAT_S", 0.1)
    await make_consumer()
    requests = KeptMessages()
    await wire.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c", requests)
    hand = await take_up(batch=10)
    await requests.first(3)
    await fill(js, stream, 12)
    assert handed_out(await hand.seen.first(12)) == [(n, n) for n in range(1, 13)]
    await requests.first(6)
    await fill(js, stream, 1)
    await hand.seen.first(13)
    assert hand.gaps == []


async def test_messages_larger_than_a_request_come_in_their_turn(
    js: JetStream,
    stream: str,
    make_consumer: MakeConsumer,
    take_up: TakeUp,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pull_room, "REQUEST_BYTES_MAX", 2000)
    await make_consumer()
    sizes = [10, 5000, 700, 700, 700, 1 << 19, 1 << 19, 1990, 0, 700] * 2
    for size in sizes:
        await js.publish(f"{stream}.a", b"x" * size)
    hand = await take_up(batch=10)
    assert [len(message.data) for message in await hand.seen.first(len(sizes))] == sizes
    assert hand.gaps == []


async def test_the_server_counts_the_bytes_of_a_request_as_we_do(
    js: JetStream, stream: str, make_consumer: MakeConsumer, raw: RawPull
) -> None:
    """The server tells the rest of a limit that is too small, and nothing when one is used up exactly."""
    await js.publish(f"{stream}.a", b"1")
    await js.publish(f"{stream}.\u00e9", b"2", {"Some": "header"})
    await js.publish(f"{stream}.a", b"3")
    await make_consumer()
    await raw.ask(batch=3)
    sizes = [(await raw.next()).size for _ in range(3)]
    await js.consumer_deleted(stream, "c")
    await make_consumer()
    await raw.ask(batch=5, max_bytes=sizes[0] + sizes[1])
    assert [(await raw.next()).size for _ in range(2)] == sizes[:2]
    await raw.ask(batch=5, max_bytes=sizes[2] - 1)
    status, text, headers = await raw.status()
    assert (status, text) == ("409", "Message Size Exceeds MaxBytes")
    assert (headers["Nats-Pending-Messages"], headers["Nats-Pending-Bytes"]) == ("5", str(sizes[2] - 1))
    await raw.ask(batch=1, max_bytes=sizes[2] + 7)
    assert (await raw.next()).size == sizes[2]
    status, text, headers = await raw.status()
    assert (status, text) == ("409", "Batch Completed")
    assert (headers["Nats-Pending-Messages"], headers["Nats-Pending-Bytes"]) == ("0", "7")


async def test_a_missing_consumer_is_reported(take_up: TakeUp) -> None:
    hand = await take_up()
    assert await hand.gap() == "503"


async def test_a_number_that_is_not_the_next_ends_the_reading(
    js: JetStream, stream: str, make_consumer: MakeConsumer, take_up: TakeUp, raw: RawPull
) -> None:
    """Another client got the first message; nothing after the gap is passed on."""
    await make_consumer()
    await fill(js, stream, 3)
    await raw.ask(batch=1)
    await raw.next()
    hand = await take_up()
    assert await hand.gap() == "consumer sequence 2 after 0"
    await fill(js, stream, 1)
    await facts(js, stream)
    assert (hand.seen.messages, len(hand.gaps)) == ([], 1)


async def test_a_deleted_consumer_is_reported(
    js: JetStream, stream: str, make_consumer: MakeConsumer, take_up: TakeUp
) -> None:
    await make_consumer()
    await fill(js, stream, 1)
    hand = await take_up()
    await hand.seen.first(1)
    await js.request(f"$JS.API.CONSUMER.DELETE.{stream}.c", b"")
    assert await hand.gap() == "409 Consumer Deleted"


async def test_after_stop_nothing_is_asked_or_handed_on(
    js: JetStream, stream: str, make_consumer: MakeConsumer, take_up: TakeUp
) -> None:
    await make_consumer()
    hand = await take_up()
    await facts(js, stream)
    await hand.puller.stop()
    await hand.puller.stop()
    await fill(js, stream, 1)
    again = await take_up()
    assert handed_out(await again.seen.first(1)) == [(1, 1)]
    assert (hand.seen.messages, hand.gaps) == ([], [])
