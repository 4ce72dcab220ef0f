"""Journals under test: facts to add, and the flushes that were stored."""

from collections.abc import Awaitable, Callable

from actors.machine.facts import EventDropped
from streams.installation.topology import Names
from streams.journal.envelope import Flush, decode_flush
from streams.journal.journal import Journal
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from tests.contract.support.shards import SHARD, Listening, blank, repeated

DAY_S = 86_400.0
Keep = Callable[..., Awaitable[tuple[Journal, Listening]]]


def add(journal: Journal, count: int, *, urgent: bool = False) -> None:
    for _ in range(count):
        journal.add(repeated(journal.index + 1), blank(), urgent)


async def flushes(js: JetStream, names: Names) -> list[Flush]:
    """All flushes, that of the claim left out."""
    page = await js.read(names.journal, names.journal_of(SHARD), 1)
    return [flush for message in page.messages if (flush := decode_flush(message.data, "the journal")).flush]


async def last_of(js: JetStream, names: Names) -> StoredMessage:
    message = await js.last_message(names.journal, names.journal_of(SHARD))
    assert message is not None
    return message


def positions(flush: Flush) -> list[int]:
    return [fact.position for fact in flush.facts if isinstance(fact, EventDropped)]
