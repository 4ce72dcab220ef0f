"""Requests of a node for a receiver with batches: for as many messages as may go in one POST."""

import asyncio

import msgspec

from actors.machine.outcome import Answered, Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.node.app import joined_node
from streams.clock import SystemTime
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message, Wire
from streams.reading.inbox import PULL_BATCH
from tests.contract.support.shards import RECEIVER
from tests.support.installation import install, node_settings, publish
from tests.support.waiting import until


class Slow:
    """Answers once it may; `began` is set at the first attempt."""

    def __init__(self) -> None:
        self.began, self.may_answer = asyncio.Event(), asyncio.Event()

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        self.began.set()
        await self.may_answer.wait()
        return Answered(status=200, latency_ms=1.0)


async def test_a_receiver_with_batches_gets_more_messages_with_one_request(
    wire: Wire, js: JetStream, prefix: str
) -> None:
    names, requested = await install(js, prefix), list[int]()

    def note(message: Message) -> None:
        requested.append(msgspec.json.decode(message.data)["batch"])

    await js.publish(names.receiver(RECEIVER), b'{"url": "https://a.example", "batch": {"max_events": 256}}')
    await publish(js, names, RECEIVER)
    sender = Slow()
    watching = await js.wire.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{names.deliveries}.*", note)
    async with joined_node(wire, node_settings(names), SystemTime(), sender):
        await sender.began.wait()
        for _ in range(PULL_BATCH):
            await publish(js, names, RECEIVER)
        await until(lambda: max(requested, default=0) > PULL_BATCH)
        sender.may_answer.set()
    await watching.unsubscribe()
