"""The last seconds of the journal: read once, and no more than can be read in a moment."""

import pytest

from streams.installation.topology import Names
from streams.journal_feed import recent_flushes
from streams.journal_feed.recent_flushes import RecentFlushes
from streams.nats.jetstream import JetStream
from tests.support.ledgers import JournalWriter, delivered


@pytest.fixture
def journal(js: JetStream, names: Names) -> JournalWriter:
    return JournalWriter(js, names)


async def test_each_read_reads_on(js: JetStream, names: Names, journal: JournalWriter) -> None:
    flushes = RecentFlushes(js, names)
    assert await flushes.read_new() == []
    await journal.flush(delivered(1))
    await journal.flush(delivered(2))
    found = await flushes.read_new()
    assert [each.facts for each in found] == [(delivered(1),), (delivered(2),)]
    assert all(flushes.since <= each.stored_at <= flushes.now + 1 for each in found)
    assert await flushes.read_new() == []
    await journal.flush(delivered(3))
    assert [each.facts for each in await flushes.read_new()] == [(delivered(3),)]
    assert len(await RecentFlushes(js, names).read_new()) == 3


async def test_only_the_last_of_too_many_events_are_read(
    js: JetStream, names: Names, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_flushes, "MESSAGES_MAX", 2)
    for number in range(1, 6):
        await journal.flush(delivered(number))
    flushes = RecentFlushes(js, names)
    found = await flushes.read_new()
    assert [each.facts for each in found] == [(delivered(4),), (delivered(5),)]
    assert flushes.since == found[0].stored_at  # What is measured is the time that was read.
    for number in range(6, 10):
        await journal.flush(delivered(number))
    assert [each.facts for each in await flushes.read_new()] == [(delivered(8),), (delivered(9),)]
