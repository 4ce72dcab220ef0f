"""A reader from one consumer to the next: it asks for its lease, keeps its pause, and does not hurry."""

import asyncio
from collections.abc import Callable

import pytest

from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses
from streams.nats.wire import Message
from streams.reading import reader
from streams.reading.pull_room import PullRoom
from streams.reading.reader import Reader, ReadingTerms
from streams.reading.reply_subject import DeliveryInfo
from tests.support.installation import publish, shard
from tests.support.waiting import until

RECEIVER = "acme.billing"
SHARD = shard(RECEIVER)


def new_reader(
    js: JetStream,
    names: Names,
    on_message: Callable[[Message, DeliveryInfo], None],
    may_read: Callable[[], bool] = lambda: True,
) -> Reader:
    terms = ReadingTerms(
        may_read=may_read, on_broken=pytest.fail, on_lost=lambda loss: pytest.fail(loss.why), room=PullRoom()
    )
    return Reader(
        js,
        names.deliveries,
        names.shard_consumer(SHARD, 1),
        names.deliveries_of(SHARD),
        terms,
        on_message=on_message,
        after=lambda: 0,
    )


async def test_no_consumer_is_made_if_the_lease_expires_while_the_stream_is_compared(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    valid = asyncio.Event()
    valid.set()

    async def compared_slowly(*_: object) -> None:
        valid.clear()

    leased = new_reader(js, names, lambda *_: None, valid.is_set)
    with monkeypatch.context() as patch:
        patch.setattr(reader, "find_loss", compared_slowly)
        await leased.start()
        await until(lambda: "reader.waiting" in caplog.messages or leased.consumers > 0)
        assert await js.consumers(names.deliveries) == []
    valid.set()
    await until(lambda: leased.consumers == 1)
    await leased.stop()


async def test_a_paused_reader_stays_paused_with_a_new_consumer(js: JetStream, names: Names) -> None:
    read = list[int]()
    paused = new_reader(js, names, lambda _, told: read.append(told.position))
    paused.set_pulling_paused(True)
    await publish(js, names, RECEIVER)
    await paused.start()
    await until(lambda: paused.consumers == 1)
    for _ in range(20):
        [consumer] = await js.consumers(names.deliveries)
        assert consumer.delivered == 0
    paused.set_pulling_paused(False)
    await until(lambda: read == [1])
    await paused.stop()


async def test_a_reader_whose_consumers_get_no_further_pauses_between_them(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that can never be taken would otherwise cost the server consumers without end."""
    waits = list[float]()

    class NotedPauses(Pauses):
        async def wait(self) -> None:
            waits.append(self.next_s)
            await super().wait()

    def refuse(*_: object) -> None:
        raise RuntimeError("refused")

    monkeypatch.setattr(reader, "Pauses", NotedPauses)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    await publish(js, names, RECEIVER)
    failing = new_reader(js, names, refuse)
    await failing.start()
    await until(lambda: failing.consumers == 3)
    assert waits[:2] == [0.05, 0.1]
    await failing.stop()
