"""Owners of shards that only answer as a test tells them to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from streams.installation.topology import Names
from streams.nats.answers import Put
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message


@asynccontextmanager
async def owner_answers(
    js: JetStream, names: Names, receiver: str, answer: dict[str, Any]
) -> AsyncIterator[None]:
    """An owner of the receiver's shard that gives one answer to each request to erase."""
    tenant, _, name = receiver.partition(".")

    def reply(message: Message) -> None:
        js.wire.send([Put(message.reply, msgspec.json.encode(answer), None)], [""])

    subscription = await js.wire.subscribe(names.control("erase", tenant, name), reply)
    yield
    await subscription.unsubscribe()
