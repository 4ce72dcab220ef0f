"""Owners of shards that only show themselves, or answer what a test tells them to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from streams.fleet.members import Member
from streams.installation.topology import Names
from streams.journal.claim import Owner
from streams.nats.answers import Put
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.support.installation import SHARDS


async def own_all_shards(js: JetStream, names: Names, node: str = "n1") -> None:
    """A live node that owns all shards, by its heartbeat and its claims."""
    member = Member(node=node, started_at=0.0, version="1", heartbeat=1)
    await js.publish(names.node(node), msgspec.json.encode(member))
    for shard in range(SHARDS):
        await js.publish(names.actor_keys.owner(shard), msgspec.json.encode(Owner(node=node, at=0.0)))


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
