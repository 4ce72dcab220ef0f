"""A consumer and its pullers: by hand, and our pull loop."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from streams.nats.answers import ConsumerInfo
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message, Wire
from streams.reading.pull import Puller
from streams.reading.pull_room import PullRoom
from streams.reading.reply_subject import DeliveryInfo, delivery_info
from tests.support.waiting import KeptMessages, until, until_true

MILLISECOND = 1_000_000

MakeConsumer = Callable[..., Awaitable[ConsumerInfo]]
TakeUp = Callable[..., Awaitable["ManualPuller"]]


async def fill(js: JetStream, stream: str, count: int) -> None:
    """Publish that many messages, numbered on from 1, spread over three subjects."""
    info = await js.stream_info(stream)
    assert info is not None
    for number in range(info.last + 1, info.last + count + 1):
        await js.publish(f"{stream}.{number % 3}", b"%d" % number)


async def facts(js: JetStream, stream: str) -> ConsumerInfo:
    info = await js.consumer_info(stream, "c")
    assert info is not None
    return info


async def acked(js: JetStream, stream: str, floor: int, unacked: int) -> None:
    """Return when the acks that were sent have come to this; the server takes them in its own time."""

    async def taken() -> bool:
        info = await facts(js, stream)
        return (info.ack_floor, info.unacked) == (floor, unacked)

    await until_true(taken)


def handed_out(messages: list[Message]) -> list[tuple[int, int]]:
    """The stream's and the consumer's number of each."""
    return [(d.position, d.number) for d in (delivery_info(m.reply) for m in messages)]


class RawPull:
    """Requests as one sends them by hand; answers and messages come in together."""

    def __init__(self, wire: Wire, stream: str) -> None:
        self.seen = KeptMessages()
        self._wire = wire
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c"
        self._inbox = wire.new_inbox()

    async def open(self) -> None:
        await self._wire.subscribe(self._inbox, self.seen)

    async def ask(self, **request: Any) -> None:
        wanted = {"batch": 10, "expires": 2_000 * MILLISECOND} | request
        await self._wire.publish(self._subject, msgspec.json.encode(wanted), self._inbox)

    async def next(self) -> Message:
        await until(lambda: bool(self.seen.messages))
        return self.seen.messages.pop(0)

    async def status(self) -> tuple[str, str, dict[str, str]]:
        """The next answer, which has to be a status."""
        message = await self.next()
        assert message.reply == ""
        assert message.data == b""
        headers = message.headers or {}
        return headers["Status"], headers.get("Description", ""), headers


class ManualPuller:
    """A puller with what it was given."""

    def __init__(self, js: JetStream, stream: str, **options: Any) -> None:
        self.seen = KeptMessages()
        self.gaps: list[str] = []
        options = {"room": PullRoom()} | options
        self.puller = Puller(js, stream, "c", on_message=self._take, on_gap=self.gaps.append, **options)

    def _take(self, message: Message, info: DeliveryInfo) -> None:
        assert info == delivery_info(message.reply)
        self.seen(message)

    async def gap(self) -> str:
        await until(lambda: bool(self.gaps))
        return self.gaps[0]
