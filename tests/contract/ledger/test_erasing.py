"""A ledger that follows forgets what was erased, in every table, and nothing else."""

import asyncio
import secrets
import sqlite3
import time
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from actors.machine import facts as f
from actors.machine.evolve import evolve
from actors.machine.state import State
from angarium.ledger import schema
from angarium.ledger import writer as writing
from angarium.ledger.address import Database
from angarium.ledger.fold import FoldedState
from angarium.ledger.open import open_for_queries
from angarium.ledger.postgres import overwrite_answers as postgres_answers
from angarium.ledger.postgres.session import opened
from angarium.ledger.postgres.store import PostgresStore
from angarium.ledger.sqlite import store as sqlite_tables
from angarium.ledger.writer import ERASURES, Writer
from streams.erasing.erasures import Erasures, finished
from streams.installation.topology import Names
from streams.journal_feed import journal_reader
from streams.journal_feed.bucket_reader import BucketReader
from streams.journal_feed.journal_reader import JournalReader
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from tests.support.installation import shard
from tests.support.ledgers import (
    KEEP_S,
    NOW,
    RECEIVER,
    InDatabase,
    InFile,
    JournalWriter,
    Kept,
    Killed,
    catch_up,
    delivered,
    failed,
    opens,
    snapshot,
    writer,
)
from tests.support.waiting import until, until_true


async def holds(ledger: Kept, mark: str) -> bool:
    return mark.encode() in await ledger.dump()


def in_files(directory: Path, mark: str) -> bool:
    """True if a file of the database holds the mark, except its write-ahead log."""
    files = [each for each in directory.rglob("*") if each.is_file() and "pg_wal" not in each.parts]
    return any(mark.encode() in each.read_bytes() for each in files)


async def erase(js: JetStream, names: Names, event: str) -> None:
    """Records that the event is erased everywhere else."""
    erasures = Erasures(js, names)
    await erasures.request("acme", event, "ops@host", NOW)
    end = (await stream_info(js, names.journal)).last
    async for request, revision in erasures.pending():
        await erasures.store_progress(finished(request, NOW, end), revision)


async def test_answers_to_an_erased_event_leave_the_ledger(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    mark, kept = secrets.token_hex(200), secrets.token_hex(200)
    await journal.flush(opens())
    for attempt in range(1, 20):
        await journal.flush(failed(1, NOW + attempt, attempt=attempt, answer=mark))
        await journal.flush(failed(2, NOW + attempt, attempt=attempt, answer=kept))
        if attempt % 5 == 0:
            await catch_up(js, names, ledger)
    await catch_up(js, names, ledger)
    assert await holds(ledger, mark)
    await erase(js, names, "e1")
    await catch_up(js, names, ledger)
    assert not await holds(ledger, mark)
    assert await holds(ledger, kept)
    assert await ledger.rows("SELECT count(*), count(answer) FROM attempts") == [(38, 19)]
    assert await ledger.rows("SELECT event FROM deliveries ORDER BY sequence") == [("e1",), ("e2",)]
    await journal.flush(delivered(2, attempt=40))
    await catch_up(js, names, ledger)
    assert await ledger.rows("SELECT sequence FROM attempts WHERE verdict = 0") == [(2,)]


async def test_a_request_at_a_position_that_a_bucket_lost_is_carried_out(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    mark = secrets.token_hex(200)
    await journal.flush(opens(), failed(1, answer=mark))
    # The ledger has read further in the bucket that lost its tail.
    await erase(js, names, "e0")
    await catch_up(js, names, ledger)
    await ledger.execute("UPDATE positions SET position = position + 1000 WHERE stream = 'erasures'")
    await erase(js, names, "e1")
    await catch_up(js, names, ledger)
    assert not await holds(ledger, mark)


async def test_a_ledger_that_lags_reads_to_the_end_of_it_first(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    mark = secrets.token_hex(200)
    await journal.flush(opens())
    await catch_up(js, names, ledger)
    await journal.flush(failed(1, answer=mark))
    await erase(js, names, "e1")
    await catch_up(js, names, ledger)
    assert not await holds(ledger, mark)
    assert await ledger.rows("SELECT status, answer FROM attempts") == [(500, None)]


async def test_only_the_tenant_of_the_event_is_meant(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    other, mark = "acme2.billing", secrets.token_hex(200)
    await journal.flush(opens(other), failed(1, answer=mark, receiver=other), receiver=other)
    await erase(js, names, "e1")
    await catch_up(js, names, ledger)
    assert await holds(ledger, mark)


async def test_an_event_that_was_erased_while_it_waited_says_so(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    await journal.flush(opens(), failed(1))
    await journal.flush(
        f.Missing(receiver=RECEIVER, at=NOW + 9, first=101, last=101, next_sequence=2, reason=f.ERASED)
    )
    await catch_up(js, names, ledger)
    assert await ledger.rows("SELECT ending, reason FROM deliveries") == [(3, "erased")]
    assert await ledger.rows("SELECT kind FROM changes WHERE kind = 'missing'") == []


async def test_an_erasure_of_one_shard_takes_nothing_from_what_is_known_of_another(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept
) -> None:
    other, unsaved = "acme.other", "acme.unsaved"
    assert len({shard(each) for each in (RECEIVER, other)}) == 2
    truth = {}
    for receiver in (other, unsaved):
        state = evolve(State(receiver=receiver), opens(receiver))
        position = await journal.flush(opens(receiver), receiver=receiver)
        if receiver == other:  # An older state than what the ledger is going to know.
            await snapshot(js, names, position, state)
        for number in (1, 2, 3):
            fact = delivered(number, receiver=receiver)
            state = evolve(state, fact)
            await journal.flush(fact, receiver=receiver)
        truth[receiver] = state
    await catch_up(js, names, ledger)
    erased = await journal.flush(opens(), failed(1, answer="secret"))
    await journal.flush(delivered(2))
    await js.delete(names.journal, erased)
    await catch_up(js, names, ledger)
    for receiver, state in truth.items():
        journal.at = NOW + 60
        last = delivered(4, NOW + 50, receiver=receiver)
        await journal.flush(last, receiver=receiver)
        await catch_up(js, names, ledger)
        async with open_for_queries(ledger.location) as queries:
            row = await queries.receiver(receiver)
            assert row is not None
            moment = await queries.moment(row, receiver, round((NOW + 100) * 1000))
        assert isinstance(moment, FoldedState)
        assert moment.state == evolve(state, last)


@pytest.mark.parametrize("world", [("memory", "sqlite")], ids="-".join)
async def test_an_event_that_the_ledger_does_not_know_costs_it_no_new_file(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwritten = list[object]()

    async def overwrite(db: object) -> bool:
        overwritten.append(db)
        return True

    monkeypatch.setattr(sqlite_tables, "overwrite", overwrite)
    await journal.flush(opens(), failed(1, answer="secret"))
    await catch_up(js, names, ledger)
    await erase(js, names, "invented")
    await catch_up(js, names, ledger)
    assert not overwritten
    await erase(js, names, "e1")
    await catch_up(js, names, ledger)
    assert len(overwritten) == 1


@pytest.mark.parametrize("world", [("memory", "sqlite")], ids="-".join)
async def test_erasing_takes_a_tenth_of_the_writers_time(
    js: JetStream, names: Names, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.ledger.writer.ERASURES_EVERY_S", 0.1)
    monkeypatch.setattr("angarium.ledger.writer.GATHER_FLUSHES_S", 0.05)
    began = list[float]()
    async with ledger.store() as store:
        real = store.erase

        async def erased(*arguments: Any) -> Any:
            began.append(time.monotonic())
            why = await real(*arguments)
            await asyncio.sleep(0.1)
            return why

        monkeypatch.setattr(store, "erase", erased)
        writing = asyncio.create_task(writer(js, names, store).run())
        try:
            await erase(js, names, "e1")
            await until(lambda: len(began) == 1)
            await erase(js, names, "e2")
            await until(lambda: len(began) == 2)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
    assert began[1] - began[0] >= 1


async def test_an_answer_that_outlives_the_block_of_its_delivery_is_erased(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BLOCK_FACTS", 2)
    mark, periods = secrets.token_hex(200), count()
    flushes = (
        (opens(), failed(1, answer="first"), delivered(8, NOW + 1), delivered(9, NOW + 80_000)),
        (failed(1, NOW + 90_000, attempt=2, answer=mark), delivered(1, NOW + 90_001, attempt=3)),
        (delivered(2, NOW + 90_002), delivered(3, NOW + 90_003)),
    )
    async with ledger.store() as store:
        if isinstance(store, PostgresStore):  # One block a period.
            block = store.block_for
            monkeypatch.setattr(store, "block_for", lambda at: block(next(periods) * round(KEEP_S * 1000)))
        following = writer(js, names, store)
        for facts in flushes:
            await journal.flush(*facts)
            await following.catch_up()
            journal.at += 90_000
        oldest = await store.oldest_full_block()
        assert oldest is not None
        async for _ in store.drop_block(oldest):
            await asyncio.sleep(0)
    assert await ledger.rows("SELECT sequence, attempt FROM attempts WHERE answer IS NOT NULL") == [(1, 2)]
    assert await ledger.rows("SELECT sequence FROM deliveries ORDER BY sequence") == [(1,), (2,), (3,), (9,)]
    await erase(js, names, "e1")
    await catch_up(js, names, ledger)
    assert not await holds(ledger, mark)


@pytest.mark.parametrize(
    ("world", "every"),
    [
        pytest.param(("memory", "sqlite"), 1, id="sqlite"),
        pytest.param(("memory", "postgresql"), 7, id="postgresql, some"),
        pytest.param(("memory", "postgresql"), 1, id="postgresql", marks=pytest.mark.soak),
    ],
)
async def test_an_erasure_waits_for_the_end_of_a_drop_that_a_death_interrupted(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    ledger: Kept,
    every: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema, "BLOCK_FACTS", 2)
    monkeypatch.setattr(journal_reader, "READ_MESSAGES_MAX", 1)
    monkeypatch.setattr(writing, "PRUNE_EVERY_S", 0.0)
    mark, waited, deaths = secrets.token_hex(200), 0, 0
    await journal.flush(opens(), failed(1, answer=mark), delivered(1, attempt=2))
    journal.at = NOW + 3600
    await journal.flush(delivered(2), delivered(3))
    await erase(js, names, "e1")
    for after in count(step=every):
        await ledger.empty()
        await fill(js, names, ledger, monkeypatch)
        with suppress(Killed):
            async with ledger.dying(after) as store:
                await drop_oldest(writer(js, names, store, keep_s=600))
                break
        deaths += 1
        await ledger.lapse()
        async with ledger.store() as store:
            await writer(js, names, store, keep_s=600).catch_up()
            done = (await store.read_position(ERASURES)).position > 0
            assert not (done and await holds(ledger, mark))
            waited += not done
            if not done:
                await drop_oldest(writer(js, names, store, keep_s=600))
                await writer(js, names, store, keep_s=600).catch_up()
                assert (await store.read_position(ERASURES)).position > 0
                assert not await holds(ledger, mark)
    assert 0 < waited < deaths


@pytest.mark.parametrize("world", [("memory", "postgresql")], ids="-".join)
async def test_an_erasure_waits_for_a_drop_that_waits_for_a_reader(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    in_database: InDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema, "BLOCK_FACTS", 2)
    monkeypatch.setattr(journal_reader, "READ_MESSAGES_MAX", 1)
    monkeypatch.setattr(writing, "ERASURES_EVERY_S", 0.0)
    await journal.flush(opens(), failed(1, answer="first"), delivered(1, attempt=2))
    journal.at = NOW + 3600
    await journal.flush(delivered(2), delivered(3))
    await fill(js, names, in_database, monkeypatch)
    await erase(js, names, "e1")
    feed, bucket = JournalReader(js, names), BucketReader(js, names)
    async with (
        in_database.store() as store,
        opened(Database(in_database.location), "reader") as reader,
    ):
        following, erasing, during = writer(js, names, store, keep_s=600), store.erase, list[bool]()

        async def noted(*arguments: Any) -> str:
            during.append(following.is_dropping)
            return await erasing(*arguments)

        monkeypatch.setattr(store, "erase", noted)  # Dropping and erasing share a connection.
        await reader.execute("BEGIN")
        await reader.rows("SELECT sequence FROM attempts")
        for _ in range(20):
            await following.step(feed, bucket)
            assert following.is_dropping
        assert (await store.read_position(ERASURES)).position == 0
        await reader.execute("COMMIT")

        async def is_erased() -> bool:
            await following.step(feed, bucket)
            return (await store.read_position(ERASURES)).position > 0

        await until_true(is_erased)
        assert during == [False]
        await following.stop()
    feed.stop()


async def fill(js: JetStream, names: Names, ledger: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store the journal, a block a flush, and read no request to erase."""

    async def none(*_: object) -> None: ...

    async with ledger.store() as store:
        with monkeypatch.context() as patch:
            patch.setattr(writing, "next_request", none)
            if isinstance(store, PostgresStore):  # One block a period.
                periods, block = count(1), store.block_for
                patch.setattr(store, "block_for", lambda at: block(next(periods) * round(KEEP_S * 1000)))
            await writer(js, names, store).catch_up()


async def drop_oldest(pruning: Writer) -> None:
    """Drop the oldest block."""
    await pruning.renew()
    await pruning.prune()
    while pruning.is_dropping:
        await pruning.prune()
        await asyncio.sleep(0)


@pytest.mark.parametrize("world", [("memory", "sqlite")], ids="-".join)
async def test_an_answer_that_a_reader_keeps_in_a_file_is_erased_when_it_has_gone(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(ledger, InFile)
    monkeypatch.setattr(sqlite_tables, "BUSY_TIMEOUT_MS", 100)
    mark = secrets.token_hex(200)
    await journal.flush(opens(), failed(1, answer=mark))
    await catch_up(js, names, ledger)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM attempts").fetchall()
        await erase(js, names, "e1")
        async with ledger.store() as store:
            await writer(js, names, store).catch_up()
            assert (await store.read_position(ERASURES)).position == 0
            reader.execute("COMMIT")
            assert await holds(ledger, mark)
            await writer(js, names, store).catch_up()
            assert (await store.read_position(ERASURES)).position > 0
            assert not await holds(ledger, mark)


@pytest.mark.parametrize("world", [("memory", "sqlite")], ids="-".join)
async def test_a_writer_that_dies_before_the_file_is_rewritten_does_it_later(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = secrets.token_hex(200)
    await journal.flush(opens(), failed(1, answer=mark))
    await catch_up(js, names, ledger)
    await erase(js, names, "e1")

    async def dies(_: object) -> bool:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_tables, "overwrite", dies)
        with pytest.raises(Killed):
            await catch_up(js, names, ledger)
    await catch_up(js, names, ledger)
    assert not await holds(ledger, mark)


@pytest.mark.parametrize("world", [("memory", "postgresql")], ids="-".join)
async def test_an_answer_that_an_old_snapshot_keeps_is_erased_when_it_has_gone(
    js: JetStream, names: Names, journal: JournalWriter, ledger: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_answers, "SEEN_FOR_S", 0.2)
    mark = secrets.token_hex(200)
    await journal.flush(opens(), failed(1, answer=mark))
    await catch_up(js, names, ledger)
    directory = Path(parse_qs(urlparse(ledger.location).query)["host"][0])

    async with ledger.store() as store:
        async with opened(Database(ledger.location), "dump") as old:
            await old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            await old.rows("SELECT count(*) FROM receivers")
            await erase(js, names, "e1")
            await writer(js, names, store).catch_up()
            assert (await store.read_position(ERASURES)).position == 0
            await old.execute("COMMIT")
        await writer(js, names, store).catch_up()
        assert (await store.read_position(ERASURES)).position > 0
    async with opened(Database(ledger.location), "test") as session:
        await session.execute("CHECKPOINT")
    assert not in_files(directory, mark)
