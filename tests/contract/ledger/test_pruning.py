"""Answers about a past time while old facts are dropped: the truth, or that it is unknown."""

import asyncio
from itertools import count

import pytest

from actors.machine.evolve import evolve
from actors.machine.facts import Fact, PaceSet
from actors.machine.pace.pace import Pace
from actors.machine.state import State
from angarium.ledger import fold, schema
from angarium.ledger import writer as writing
from angarium.ledger.ledger_answers import Unknown
from angarium.ledger.open import open_for_queries
from angarium.ledger.postgres.store import PostgresStore
from streams.installation.topology import Names
from streams.journal_feed import journal_reader
from streams.nats.jetstream import JetStream
from tests.support.ledgers import KEEP_S, NOW, RECEIVER, JournalWriter, Kept, delivered, failed, opens, writer

EVENTS = 12


async def told(ledger: Kept) -> list[State | None]:
    """The state after each event, as far as it is known."""
    async with open_for_queries(ledger.location) as queries:
        receiver = await queries.receiver(RECEIVER)
        assert receiver is not None
        found = []
        for number in range(1, EVENTS + 1):
            moment = await queries.moment(receiver, RECEIVER, round((NOW + number + 0.2) * 1000))
            found.append(None if isinstance(moment, Unknown) else moment.state)
        return found


async def test_a_block_in_which_a_delivery_is_under_way_is_kept(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BLOCK_FACTS", 2)
    monkeypatch.setattr(writing, "PRUNE_EVERY_S", 0.0)
    async with ledger.store() as store:
        if isinstance(store, PostgresStore):  # One block a period.
            calls, block = count(1), store.block_for
            monkeypatch.setattr(store, "block_for", lambda at: block(next(calls) * round(KEEP_S * 1000)))
        pruning = writer(js, names, store, keep_s=600)
        for facts in ((opens(), failed(1)), (delivered(2),)):
            await journal.flush(*facts)
            await pruning.catch_up()
            journal.at = NOW + 3600
        await pruning.prune()
        assert not pruning.is_dropping
        await journal.flush(delivered(1, NOW + 9, attempt=2))
        await pruning.catch_up()
        await pruning.prune()
        assert pruning.is_dropping


@pytest.mark.parametrize("base_every", [3, 5])
async def test_a_state_is_right_or_unknown_at_every_time(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    ledger: Kept,
    monkeypatch: pytest.MonkeyPatch,
    base_every: int,
) -> None:
    monkeypatch.setattr(schema, "BLOCK_FACTS", 2)
    monkeypatch.setattr(journal_reader, "READ_MESSAGES_MAX", 1)
    monkeypatch.setattr(fold, "BASE_EVERY_FACTS", base_every)
    monkeypatch.setattr(writing, "PRUNE_EVERY_S", 0.0)
    truth, state = list[State | None](), State(receiver=RECEIVER)
    for number in range(1, EVENTS + 1):
        facts: list[Fact] = [*([opens()] if number == 1 else []), delivered(number, NOW + number)]
        for fact in facts:
            state = evolve(state, fact)
        truth.append(state)
        journal.at = NOW + number - 0.5
        await journal.flush(*facts)
    async with ledger.store() as store:
        if isinstance(store, PostgresStore):  # Two blocks a period.
            calls, block = count(2), store.block_for
            monkeypatch.setattr(store, "block_for", lambda at: block(next(calls) // 2 * round(KEEP_S * 1000)))
        pruning = writer(js, names, store, keep_s=3600 - 7)
        await pruning.catch_up()
        assert await told(ledger) == truth
        known = EVENTS
        async with asyncio.timeout(60):
            while await ledger.rows("SELECT 1 FROM blocks WHERE until < ?", round((NOW + 7) * 1000)):
                await pruning.prune()
                found = await told(ledger)
                # PostgreSQL drops while we ask, so a time may become unknown between two of them.
                assert all(each in (None, true) for each, true in zip(found, truth, strict=True))
                known = min(known, sum(each is not None for each in found))
        assert 3 <= known < EVENTS


async def test_the_last_of_the_paces_that_are_too_old_stays(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one held at the beginning of what is kept."""
    monkeypatch.setattr(schema, "BLOCK_FACTS", 2)
    monkeypatch.setattr(journal_reader, "READ_MESSAGES_MAX", 1)
    monkeypatch.setattr(writing, "PRUNE_EVERY_S", 0.0)
    for number in range(1, EVENTS + 1):
        journal.at = NOW + number - 0.5
        learnt = PaceSet(receiver=RECEIVER, at=NOW + number, pace=Pace(), per_second=number)
        await journal.flush(*([opens()] if number == 1 else []), delivered(number, NOW + number), learnt)
    async with ledger.store() as store:
        if isinstance(store, PostgresStore):  # Two blocks a period.
            calls, block = count(2), store.block_for
            monkeypatch.setattr(store, "block_for", lambda at: block(next(calls) // 2 * round(KEEP_S * 1000)))
        pruning = writer(js, names, store, keep_s=3600 - 7)
        await pruning.catch_up()
        assert len(await ledger.rows("SELECT 1 FROM paces")) == EVENTS
        async with asyncio.timeout(60):
            while await ledger.rows("SELECT 1 FROM paces WHERE per_second <= 3"):
                await pruning.prune()
    kept = [row[0] for row in await ledger.rows("SELECT per_second FROM paces ORDER BY at")]
    ((dropped_until,),) = await ledger.rows("SELECT at FROM pruned")
    assert kept == [*range(round(kept[0]), EVENTS + 1)]
    assert round((NOW + kept[0]) * 1000) < dropped_until <= round((NOW + kept[1]) * 1000)


async def test_a_block_that_is_dropped_between_two_queries_is_not_taken_for_no_facts(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BLOCK_FACTS", 2)
    monkeypatch.setattr(journal_reader, "READ_MESSAGES_MAX", 1)
    monkeypatch.setattr(writing, "PRUNE_EVERY_S", 0.0)
    for number in range(1, EVENTS + 1):
        journal.at = NOW + number - 0.5
        await journal.flush(*([opens()] if number == 1 else []), delivered(number, NOW + number))
    async with ledger.store() as store, open_for_queries(ledger.location) as queries:
        if isinstance(store, PostgresStore):  # Two blocks a period.
            calls, block = count(2), store.block_for
            monkeypatch.setattr(store, "block_for", lambda at: block(next(calls) // 2 * round(KEEP_S * 1000)))
        pruning = writer(js, names, store, keep_s=3600 - 7)
        await pruning.catch_up()
        receiver = await queries.receiver(RECEIVER)
        assert receiver is not None
        rows, asked = queries.rows, list[str]()

        async def prune_first(query: str, *values: object) -> list[object]:
            """Answers after all old blocks were dropped, if the facts are asked for."""
            if "f.facts" in query and not asked:
                asked.append(query)
                while await ledger.rows("SELECT 1 FROM blocks WHERE until < ?", round((NOW + 7) * 1000)):
                    await pruning.prune()
            return await rows(query, *values)

        monkeypatch.setattr(queries, "rows", prune_first)
        moment = await queries.moment(receiver, RECEIVER, round((NOW + 2.2) * 1000))
        assert asked
        assert isinstance(moment, Unknown)
