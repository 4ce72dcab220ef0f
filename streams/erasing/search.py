"""Finds every stored message that holds an event, by its id: no stream has an index of ids.

Streams are read by batch direct get, and a replica that lags does not know the newest messages. So a search
goes up to the end that the leader names, and asks the leader for what a replica does not show there. Several
searches in a row would not help: the replica may lag all the time.
"""

import asyncio
from collections.abc import AsyncIterator

from actors.ids import tenant_of
from actors.machine import facts as f
from streams.installation.topology import Names
from streams.journal.envelope import decode_flush
from streams.journal.leadership import ensure_no_message, info_since
from streams.lost_tails.marks import Mark
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import ALL_SUBJECTS, JetStream
from streams.nats.wire_names import EVENT_ID
from streams.reading.messages import stored_event
from streams.routing.fanout import event_of_message

PAGE_MESSAGES = 512
PAGE_BYTES = 1 << 20
"""Small enough that a node which searches continues with its other work."""


async def pages(
    js: JetStream, stream: str, subject: str, after: int = 0
) -> AsyncIterator[list[StoredMessage]]:
    """All messages of a subject that were stored before now. Raises `Unavailable` and `ApiError`."""
    end = (await info_since(js, stream, asyncio.get_running_loop().time())).last
    while after < end:
        messages = (await js.read(stream, subject, after + 1, PAGE_MESSAGES, PAGE_BYTES)).messages
        if not messages:
            found = await js.next_message(stream, subject, after + 1)
            if found is None or found.position > end:
                await ensure_no_message(js, stream, subject, after, end)
                return
            messages = [found]
        yield messages
        after = messages[-1].position


async def events(js: JetStream, names: Names, tenant: str, event: str) -> list[StoredMessage]:
    """The messages of the event that producers published to the tenant."""
    found = []
    async for messages in pages(js, names.events, names.events_for(tenant)):
        for each in messages:
            is_stray = names.partition_and_tenant(each.subject) is None
            if is_stray and not each.subject.startswith(names.publish_event(tenant, "")):
                continue  # Another tenant's (`streams.storage.strays`): this one's name is in its type.
            if event_of_message(names, each).id == event:
                found.append(each)
    return found


async def late_copies(
    js: JetStream, names: Names, tenant: str, event: str, source_max: int
) -> dict[str, list[Mark]]:
    """The copies, by receiver, that a router made from messages up to `source_max`."""
    return await deliveries(js, names, tenant, event, source_max)


async def deliveries(
    js: JetStream, names: Names, tenant: str, event: str, source_max: int | None = None
) -> dict[str, list[Mark]]:
    """The event's deliveries, by receiver; with `source_max`, only late copies."""
    found: dict[str, list[Mark]] = {}
    async for messages in pages(js, names.deliveries, names.deliveries_to(f"{tenant}.*")):
        for each in messages:
            delivery = stored_event(each)
            if delivery.id == event and _is_wanted(delivery.source, source_max):
                receiver = names.receiver_of_delivery(each.subject)
                found.setdefault(receiver, []).append(mark_of(each))
    return found


async def dead_letters(
    js: JetStream, names: Names, tenant: str, event: str, source_max: int | None = None
) -> list[Mark]:
    """The dead letters of the event; with `source_max`, only those of late copies."""
    found = []
    async for messages in pages(js, names.dead_letters, names.dead(f"{tenant}.*")):
        for each in messages:
            if each.headers.get(EVENT_ID) == event and _is_wanted(stored_event(each).source, source_max):
                found.append(mark_of(each))
    return found


async def answers(
    js: JetStream, names: Names, tenant: str, event: str, source_max: int | None = None
) -> dict[Mark, int]:
    """The flushes with an answer to it, which may repeat its body, and their shards.

    With `source_max`, only those with answers to late copies.
    """
    found = dict[Mark, int]()
    async for messages in pages(js, names.journal, ALL_SUBJECTS):
        for each in messages:
            if answers_event(each, tenant, event, source_max):
                found[mark_of(each)] = names.shard_of_flush(each.subject)
    return found


def mark_of(message: StoredMessage) -> Mark:
    """The mark of a message, which distinguishes it from another one at its position."""
    return Mark(position=message.position, stored_at=message.stored_at)


def answers_event(message: StoredMessage, tenant: str, event: str, source_max: int | None = None) -> bool:
    """True if a message of the journal has an answer to the event, as `answers` finds it."""
    if event.encode() not in message.data:
        return False
    flush = decode_flush(message.data, f"message {message.position} of the journal")
    return any(
        isinstance(fact, f.AttemptFailed)
        and bool(fact.answer)
        and tenant_of(fact.receiver) == tenant
        and any(each.id == event and _is_wanted(each.source, source_max) for each in fact.events)
        for fact in flush.facts
    )


def _is_wanted(source: int, source_max: int | None) -> bool:
    """True if every message is wanted, or it is a late copy: of a message up to `source_max`, by a router."""
    return source_max is None or 0 < source <= source_max
