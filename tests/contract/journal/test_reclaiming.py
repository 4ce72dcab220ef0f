"""A journal that goes on from memory: only over the flush that memory knows to be the last of its own."""

from streams.installation.topology import Names
from streams.journal.envelope import encode_flush
from streams.journal.journal import Journal
from streams.nats.jetstream import JetStream
from streams.routing_progress import NOTHING_ROUTED
from tests.contract.support.faults import misbehaving, request_lost
from tests.contract.support.servers import Server
from tests.contract.support.shards import SHARD, Clocks, Listening, blank, own, repeated
from tests.support.waiting import until


async def begin(js: JetStream, names: Names) -> tuple[Journal, Listening]:
    listening = Listening()
    claimed = await own(js, names, "a")
    journal = Journal(js, names, claimed, "a", listening, time=Clocks(), retention_s=86400.0)
    journal.start()
    return journal, listening


async def goes_on(journal: Journal, js: JetStream, names: Names) -> bool:
    await journal.suspend()
    resumed = await own(js, names, "a", resumes=journal._claim.epoch)
    went_on = journal.reclaim(resumed)
    await journal.stop()
    return went_on


async def test_not_where_the_journal_lost_a_flush(js: JetStream, names: Names) -> None:
    """Its last one is ours and an older one: what memory takes for recorded is on no record."""
    journal, listening = await begin(js, names)
    for count in (1, 2):
        journal.add(repeated(count), blank(), urgent=True)
        await listening.has(count)
    assert await js.delete(names.journal, journal.sequence)
    assert not await goes_on(journal, js, names)


async def test_not_over_a_flush_that_memory_does_not_know(
    js: JetStream, names: Names, server: Server
) -> None:
    """One is under way and undecided; the journal ends with neither that one nor the one before it."""
    async with misbehaving(server) as faulty:
        journal, _ = await begin(faulty, names)
        faulty.faults[names.journal_of(SHARD)] += [request_lost] * 100
        journal.add(repeated(1), blank(), urgent=True)
        await until(lambda: len(faulty.published[names.journal_of(SHARD)]) >= 3)
        alien = encode_flush(
            node="a", epoch=journal._claim.epoch, flush=7, floor=0, routing=NOTHING_ROUTED, at=0.0,
            unclean=None, facts=[],
        )  # fmt: skip
        await js.publish(names.journal_of(SHARD), alien)
        assert not await goes_on(journal, js, names)
