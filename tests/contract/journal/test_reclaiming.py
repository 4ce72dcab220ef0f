"""A journal whose lease lapsed continues from memory only if memory knows the last flush."""

from streams.installation.topology import Names
from streams.journal.envelope import encode_flush
from streams.journal.journal import Journal
from streams.journal.routing_progress import NOTHING_ROUTED
from streams.nats.jetstream import JetStream
from tests.contract.journal.flushes import Keep, add, flushes, last_of, positions
from tests.contract.support.faults import FaultyJetStream, ack_lost, request_lost
from tests.contract.support.shards import SHARD, own
from tests.support.waiting import until


async def lapse(journal: Journal, js: JetStream, names: Names, *, rival: bool = False) -> bool:
    await journal.suspend()
    if rival:
        await own(js, names, "b")
    return journal.reclaim(await own(js, names, "a", resumes=journal.claim.epoch))


async def test_a_journal_with_nothing_under_way_is_reclaimed(js: JetStream, names: Names, keep: Keep) -> None:
    journal, listening = await keep()
    add(journal, 2, urgent=True)
    await listening.has(2)
    assert await lapse(journal, js, names)
    add(journal, 1, urgent=True)
    await listening.has(3)
    found = await flushes(js, names)
    assert [positions(flush) for flush in found] == [[1, 2], [3]]
    assert found[0].epoch < found[1].epoch
    assert [flush.flush for flush in found] == [1, 1]


async def test_a_journal_without_a_record_is_reclaimed(js: JetStream, names: Names, keep: Keep) -> None:
    journal, listening = await keep()
    assert await lapse(journal, js, names)
    add(journal, 1, urgent=True)
    await listening.has(1)


async def test_facts_that_were_not_stored_are_sent_again_first(
    js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
) -> None:
    journal, listening = await keep()
    faulty.faults[names.journal_of(SHARD)] += [request_lost] * 100
    add(journal, 2, urgent=True)
    await until(lambda: len(faulty.published[names.journal_of(SHARD)]) >= 2)
    add(journal, 2)
    assert await lapse(journal, js, names)
    faulty.faults.clear()
    await listening.has(4)
    [flush] = await flushes(js, names)
    assert positions(flush) == [1, 2, 3, 4]
    assert listening.indices == [1, 2, 3, 4]


async def test_a_flush_that_was_stored_without_an_answer_is_confirmed(
    js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
) -> None:
    journal, listening = await keep()
    faulty.faults[names.journal_of(SHARD)] += [ack_lost] + [request_lost] * 100
    add(journal, 2, urgent=True)
    await until(lambda: len(faulty.published[names.journal_of(SHARD)]) >= 3)
    stored = (await last_of(js, names)).position
    assert listening.entries == []
    assert await lapse(journal, js, names)
    assert listening.indices == [1, 2]
    assert listening.positions == [stored]
    faulty.faults.clear()
    add(journal, 1, urgent=True)
    await listening.has(3)
    assert [positions(flush) for flush in await flushes(js, names)] == [[1, 2], [3]]


async def test_a_flush_that_arrives_late_is_refused(
    js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
) -> None:
    journal, listening = await keep()
    faulty.faults[names.journal_of(SHARD)] += [request_lost] * 100
    add(journal, 1, urgent=True)
    await until(lambda: len(faulty.published[names.journal_of(SHARD)]) >= 2)
    late, headers = faulty.published[names.journal_of(SHARD)][-1]
    assert await lapse(journal, js, names)
    await js.publish(names.journal_of(SHARD), late, headers)
    faulty.faults.clear()
    await listening.has(1)
    assert [positions(flush) for flush in await flushes(js, names)] == [[1]]


async def test_a_journal_that_another_node_owned_is_not_reclaimed(
    js: JetStream, names: Names, keep: Keep
) -> None:
    journal, _ = await keep()
    assert not await lapse(journal, js, names, rival=True)
    assert journal.is_stalled


async def test_a_fenced_journal_is_not_reclaimed(js: JetStream, names: Names, keep: Keep) -> None:
    journal, listening = await keep()
    await own(js, names, "b")
    add(journal, 1, urgent=True)
    await until(lambda: bool(listening.fences))
    assert not await lapse(journal, js, names)


async def test_a_journal_that_lost_a_flush_is_not_reclaimed(js: JetStream, names: Names, keep: Keep) -> None:
    """The journal's last flush is ours, but an older one: memory holds facts that are no longer recorded."""
    journal, listening = await keep()
    for count in (1, 2):
        add(journal, 1, urgent=True)
        await listening.has(count)
    assert await js.delete(names.journal, journal.position)
    assert not await lapse(journal, js, names)


async def test_a_journal_with_a_flush_that_memory_does_not_know_is_not_reclaimed(
    js: JetStream, names: Names, keep: Keep, faulty: FaultyJetStream
) -> None:
    """One is under way and undecided; the journal ends with neither that one nor the one before it."""
    journal, _ = await keep()
    faulty.faults[names.journal_of(SHARD)] += [request_lost] * 100
    add(journal, 1, urgent=True)
    await until(lambda: len(faulty.published[names.journal_of(SHARD)]) >= 3)
    alien = encode_flush(
        node="a", epoch=journal.claim.epoch, flush=7, floor=0, routing=NOTHING_ROUTED, at=0.0,
        unclean=None, facts=[],
    )  # fmt: skip
    await js.publish(names.journal_of(SHARD), alien)
    assert not await lapse(journal, js, names)
