"""Gaps: a lost part of the journal is recorded, and earlier knowledge stays valid after it."""

import time

import msgspec
import pytest

from actors.machine import facts as f
from actors.machine.evolve import evolve
from actors.machine.state import State
from angarium.ledger import fold, schema
from angarium.ledger.fold import FoldedState
from angarium.ledger.ledger_answers import Unknown
from angarium.ledger.open import open_for_queries
from angarium.ledger.writer import LedgerTotals, Writer
from streams.installation.topology import Names
from streams.journal_feed.bucket_reader import BucketReader
from streams.journal_feed.journal_reader import JournalReader
from streams.nats.jetstream import JetStream
from tests.support.ledgers import (
    KEEP_S,
    NOW,
    RECEIVER,
    JournalWriter,
    Kept,
    catch_up,
    delivered,
    failed,
    numbered,
    opens,
    snapshot,
    writer,
)


async def test_purged_facts_are_a_recorded_gap_and_states_go_on_from_the_snapshots(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    await journal.flush(opens())
    await journal.flush(delivered(1))
    await catch_up(js, names, ledger)
    purged = [await journal.flush(delivered(2)), await journal.flush(delivered(3))]
    state = State(receiver=RECEIVER)
    for fact in (opens(), delivered(1), delivered(2), delivered(3)):
        state = evolve(state, fact)
    await snapshot(js, names, purged[1], state)
    await journal.flush(delivered(4))
    await js.purge(names.journal, purged[1] + 1)
    await catch_up(js, names, ledger)
    assert [row[:2] for row in await ledger.rows("SELECT DISTINCT first, last FROM gaps")] == [
        (purged[0], purged[1])
    ]
    assert await ledger.rows("SELECT sequence FROM deliveries ORDER BY sequence") == [(1,), (4,)]
    (base,) = await ledger.rows("SELECT position, origin, state FROM states WHERE origin = 'snapshot'")
    assert base[0] == purged[1]
    assert msgspec.json.decode(base[2], type=State) == state
    assert await ledger.rows("SELECT DISTINCT position FROM positions WHERE stream = ?", names.journal) == [
        (purged[1] + 1,)
    ]


async def test_facts_and_gaps_are_counted_and_so_is_the_time_of_the_last_fact(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    totals = LedgerTotals()
    async with ledger.store() as store:
        counting = Writer(js, names, store, keep_s=KEEP_S, totals=totals, wall=lambda: NOW)
        await counting.store_next(JournalReader(js, names))
        assert totals.complete_at is None  # It holds no share yet.
        await journal.flush(opens())
        purged = await journal.flush(delivered(1), delivered(2))
        await journal.flush(delivered(3))
        await js.purge(names.journal, purged + 1)
        await counting.catch_up()
    assert (totals.facts, totals.gaps) == (1, 1)
    assert [totals.complete_at] == [NOW]


async def test_an_event_that_is_open_before_and_after_a_gap_has_one_row(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    await journal.flush(opens(), failed(1))
    await journal.flush(f.EventsNumbered(receiver=RECEIVER, events=(numbered(2),)))
    await catch_up(js, names, ledger)
    purged = await journal.flush(failed(1, NOW + 2, attempt=2))
    await journal.flush(failed(1, NOW + 4, attempt=3))
    await js.purge(names.journal, purged + 1)
    await catch_up(js, names, ledger)
    await journal.flush(delivered(1, NOW + 6, attempt=4))
    await catch_up(js, names, ledger)
    deliveries = await ledger.rows("SELECT sequence, ending, attempts FROM deliveries ORDER BY sequence")
    assert deliveries == [(1, schema.SETTLED, 4), (2, None, 0)]
    assert await ledger.rows("SELECT attempt FROM attempts ORDER BY at") == [(1,), (3,), (4,)]


async def test_an_event_that_is_open_before_and_after_a_gap_has_one_row_over_blocks(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts after the gap are stored in another block than those before it."""
    monkeypatch.setattr(schema, "BLOCK_FACTS", 2)
    await journal.flush(opens(), failed(1))
    await catch_up(js, names, ledger)
    purged = await journal.flush(failed(1, NOW + 2, attempt=2))
    await journal.flush(failed(1, NOW + 4, attempt=3))
    await js.purge(names.journal, purged + 1)
    await catch_up(js, names, ledger)
    assert await ledger.rows("SELECT sequence, ended_at, attempts FROM deliveries") == [(1, None, 3)]
    await journal.flush(delivered(1, NOW + 6, attempt=4))
    await catch_up(js, names, ledger)
    assert await ledger.rows("SELECT sequence, ending, attempts FROM deliveries") == [(1, schema.SETTLED, 4)]
    async with open_for_queries(ledger.location) as queries:
        (delivery,) = await queries.journey("e1")
    assert [each.attempt for each in delivery.attempts] == [1, 3, 4]


async def test_a_delivery_whose_row_was_dropped_while_it_was_known_gets_another(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    """A gap had ended it, so that its block was not busy."""
    await journal.flush(opens(), failed(1))
    async with ledger.store() as store:
        following = writer(js, names, store)
        await following.catch_up()
        purged = await journal.flush(failed(1, NOW + 2, attempt=2))
        await journal.flush(delivered(2, NOW + 3))
        await js.purge(names.journal, purged + 1)
        await following.catch_up()
        await ledger.execute("DELETE FROM deliveries WHERE sequence = 1")
        await journal.flush(delivered(1, NOW + 4, attempt=3))
        feed = JournalReader(js, names)
        while (await ledger.rows("SELECT max(attempt) FROM attempts"))[0][0] < 3:
            await following.step(feed, BucketReader(js, names))
        feed.stop()
    rows = await ledger.rows("SELECT sequence, ending, attempts FROM deliveries ORDER BY sequence")
    assert rows == [(1, schema.SETTLED, 3), (2, schema.SETTLED, 1)]


async def test_a_time_between_a_gap_and_the_snapshot_behind_it_is_unknown(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base state from before the gap lacks what was purged, and the snapshot comes later."""
    state, journal.at = State(receiver=RECEIVER), time.time() - 600
    began_at = journal.at
    opened = f.Opened(receiver=RECEIVER, at=began_at, position=0)
    facts: list[f.Fact] = [opened, *(delivered(number, began_at + number) for number in (1, 2, 3))]
    await journal.flush(*facts[:2])
    with monkeypatch.context() as patch:
        patch.setattr(fold, "BASE_EVERY_FACTS", 1)
        await catch_up(js, names, ledger)
    purged = await journal.flush(facts[2])
    last = await journal.flush(facts[3])
    for fact in facts:
        state = evolve(state, fact)
    await snapshot(js, names, last, state)
    await js.purge(names.journal, purged + 1)
    await catch_up(js, names, ledger)
    ((until,),) = await ledger.rows("SELECT DISTINCT until FROM gaps")
    await ledger.execute("UPDATE states SET at = ? WHERE origin = 'snapshot'", until + 1000)
    async with open_for_queries(ledger.location) as queries:
        receiver = await queries.receiver(RECEIVER)
        assert receiver is not None
        before = await queries.moment(receiver, RECEIVER, until - 1)
        between = await queries.moment(receiver, RECEIVER, until + 999)
        after = await queries.moment(receiver, RECEIVER, until + 1000)
    assert isinstance(before, Unknown)
    assert between == Unknown(0, until + 1000)
    assert isinstance(after, FoldedState)
    assert after.state == state
