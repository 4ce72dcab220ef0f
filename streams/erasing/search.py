"""Finds every stored message that holds an event, by its id: no stream has an index of ids.

Streams are read as batch direct get shows them. A replica that lags may miss the newest messages, so an
erasure looks again until nothing is found.
"""

from collections.abc import AsyncIterator

from actors.machine import facts as f
from streams.installation.topology import Names
from streams.journal.envelope import Flush, decode_flush
from streams.journal.leadership import ALL_SUBJECTS
from streams.nats.answers import StoredMessage
from streams.nats.headers import EVENT_ID
from streams.nats.jetstream import JetStream
from streams.reading.messages import stored_event
from streams.routing.fanout import published_event

PAGE_MESSAGES = 512
PAGE_BYTES = 1 << 20
"""Small enough that a node which searches goes on with its other work."""


async def pages(
    js: JetStream, stream: str, subject: str, after: int = 0
) -> AsyncIterator[list[StoredMessage]]:
    """All messages of a subject that are there now. Raises `Unavailable` and `ApiError`."""
    pending = 1
    while pending:
        page = await js.read(stream, subject, after + 1, PAGE_MESSAGES, PAGE_BYTES)
        if not page.messages:
            return
        yield page.messages
        after, pending = page.messages[-1].sequence, page.pending


async def events(js: JetStream, names: Names, tenant: str, event: str) -> list[StoredMessage]:
    """The messages of the event that producers published to the tenant."""
    found = []
    async for messages in pages(js, names.events, names.events_for(tenant)):
        for each in messages:
            address = each.subject.split(".", 3)[3]
            told = published_event(each.sequence, each.stored_at, address, each.headers, each.data)
            if told.id == event:
                found.append(each)
    return found


async def deliveries(js: JetStream, names: Names, tenant: str, event: str) -> dict[str, list[int]]:
    """The positions of the event's deliveries, by receiver."""
    found: dict[str, list[int]] = {}
    async for messages in pages(js, names.deliveries, names.deliveries_to(f"{tenant}.*")):
        for each in messages:
            if stored_event(each).id == event:
                receiver = each.subject.split(".", 3)[3]
                found.setdefault(receiver, []).append(each.sequence)
    return found


async def dead_letters(js: JetStream, names: Names, tenant: str, event: str) -> list[int]:
    """The positions of its dead letters."""
    found = []
    async for messages in pages(js, names.dead_letters, names.dead(f"{tenant}.*")):
        found += [each.sequence for each in messages if each.headers.get(EVENT_ID) == event]
    return found


async def answers(js: JetStream, names: Names, tenant: str, event: str) -> dict[int, int]:
    """The flushes with an answer to it, which may repeat its body: their shards by position."""
    named, found = event.encode(), dict[int, int]()
    async for messages in pages(js, names.journal, ALL_SUBJECTS):
        for each in messages:
            if named in each.data:
                flush = decode_flush(each.data, f"message {each.sequence} of {names.journal}")
                if _has_answer(flush, tenant, event):
                    found[each.sequence] = int(each.subject.rpartition(".")[2])
    return found


def _has_answer(flush: Flush, tenant: str, event: str) -> bool:
    """True if a fact of the flush has an answer to the event."""
    return any(
        isinstance(fact, f.AttemptFailed)
        and bool(fact.answer)
        and fact.receiver.partition(".")[0] == tenant
        and any(each.id == event for each in fact.events)
        for fact in flush.facts
    )
