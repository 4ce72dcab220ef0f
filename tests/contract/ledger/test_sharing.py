"""Several processes write one ledger in PostgreSQL: each fact once, despite crashes and sleeps."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from actors.machine.facts import AnyFact
from angarium.ledger.address import Database
from angarium.ledger.postgres import leases, partitions
from angarium.ledger.postgres.session import opened
from angarium.ledger.postgres.share_plan import Exchange
from angarium.ledger.postgres.store import PostgresStore
from angarium.ledger.postgres.tables import SHARE_COUNT, period_of
from angarium.ledger.store import Block, LeaseLost, LedgerAway
from streams.installation.topology import Names
from streams.journal_feed.journal_reader import JournalReader
from streams.nats.jetstream import JetStream
from tests.sim.server.timing import LoopTiming
from tests.support.installation import shard
from tests.support.ledgers import NOW, InDatabase, JournalWriter, delivered, failed, numbered, opens, writer

RECEIVERS = [f"acme.r{number}" for number in range(40)]


@pytest.fixture
def world() -> tuple[str, str]:
    return "memory", "postgresql"


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connects in a way that no other writer of the share can end."""
    monkeypatch.setattr(leases, "ENDED_CONNECTIONS", "SELECT ?::text")


class Process:
    """A writer that does one step at a time."""

    def __init__(self, js: JetStream, names: Names, store: PostgresStore) -> None:
        self.store = store
        self.writer = writer(js, names, store)
        self.journal = JournalReader(js, names)

    async def hold(self) -> set[int]:
        await self.writer.renew()
        return self.writer.shares

    async def step(self) -> None:
        await self.writer.store_next(self.journal)


@pytest.fixture
async def stores(in_database: InDatabase) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:

        async def open_one() -> PostgresStore:
            return await stack.enter_async_context(in_database.store())

        yield open_one


@pytest.fixture
async def one(js: JetStream, names: Names, journal: JournalWriter, stores: Any) -> Process:
    """A writer that holds all shares, and has stored a delivery in the only block."""
    process = Process(js, names, await stores())
    await process.hold()
    await journal.flush(opens(), delivered(1))
    await process.step()
    return process


async def one_event_each(journal: JournalWriter, sequence: int) -> None:
    for name in RECEIVERS:
        facts: list[AnyFact] = [opens(name)] if sequence == 1 else []
        await journal.flush(*facts, delivered(sequence, NOW + sequence, receiver=name), receiver=name)


async def sequences(ledger: InDatabase) -> dict[int, int]:
    """Counts the receivers with each number, with each of their rows."""
    rows = await ledger.rows("SELECT sequence, count(*) FROM attempts GROUP BY sequence ORDER BY sequence")
    return dict(rows)


async def test_live_writers_divide_the_shares(
    js: JetStream, names: Names, in_database: InDatabase, stores: Any
) -> None:
    one, two, three = [Process(js, names, await stores()) for _ in range(3)]
    assert await one.hold() == set(range(SHARE_COUNT))
    assert await two.hold() == set()  # Nothing is free until the first gives some up.
    assert len(await one.hold()) == 8
    assert await two.hold() == set(range(1, 16, 2))  # A small installation has only the first.
    await three.hold()
    await one.hold()
    await two.hold()
    parts = [await each.hold() for each in (three, one, two)]
    assert sorted(map(len, parts)) == [4, 6, 6]
    assert set.union(*parts) == set(range(SHARE_COUNT))
    await three.store.close()
    await one.hold()
    assert await one.hold() | await two.hold() == set(range(SHARE_COUNT))


async def test_a_share_that_another_process_took_stays_there(
    js: JetStream, names: Names, in_database: InDatabase, stores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes may see the same free share; the second is too late."""
    one, two = [Process(js, names, await stores()) for _ in range(2)]
    every = set(range(SHARE_COUNT))
    assert await one.hold() == every
    monkeypatch.setattr(leases, "exchange", lambda *_: Exchange((), tuple(every)))
    assert await two.hold() == set()
    assert await one.hold() == every


async def test_each_stores_what_is_its_own(
    js: JetStream, names: Names, journal: JournalWriter, in_database: InDatabase, stores: Any
) -> None:
    one, two = [Process(js, names, await stores()) for _ in range(2)]
    await one.hold()
    await two.hold()
    await one.hold()
    await two.hold()
    await one_event_each(journal, 1)
    mine = {name for name in RECEIVERS if shard(name) % SHARE_COUNT in one.writer.shares}
    assert 0 < len(mine) < len(RECEIVERS)
    await one.step()
    stored = {name for (name,) in await in_database.rows("SELECT name FROM receivers")}
    assert stored == mine
    await two.step()
    assert await sequences(in_database) == {1: len(RECEIVERS)}


async def test_a_holder_that_slept_over_its_lease_stores_nothing_more(
    js: JetStream, names: Names, journal: JournalWriter, in_database: InDatabase, stores: Any
) -> None:
    """The sleeper's connection is closed, so its open transaction blocks no other; its state is dropped."""
    sleeper = Process(js, names, await stores())
    await sleeper.hold()
    await one_event_each(journal, 1)
    await sleeper.step()
    await one_event_each(journal, 2)
    await in_database.lapse()
    other = Process(js, names, await stores())
    assert len(await other.hold()) == SHARE_COUNT
    await other.step()
    with pytest.raises(LedgerAway):
        await sleeper.step()
    assert await sequences(in_database) == {1: len(RECEIVERS), 2: len(RECEIVERS)}


async def test_a_writer_that_lost_a_share_but_not_its_connection_is_refused(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    in_database: InDatabase,
    stores: Any,
    connected: None,
) -> None:
    sleeper = Process(js, names, await stores())
    await sleeper.hold()
    await one_event_each(journal, 1)
    await in_database.lapse()
    other = Process(js, names, await stores())
    await other.hold()
    with pytest.raises(LeaseLost):  # Also where nothing has been written since.
        await sleeper.step()
    assert await sequences(in_database) == {}
    await other.step()
    with pytest.raises(LeaseLost):
        await sleeper.step()
    assert await sequences(in_database) == {1: len(RECEIVERS)}


async def test_a_returned_share_is_read_from_its_stored_position(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    in_database: InDatabase,
    stores: Any,
    connected: None,
) -> None:
    """An event that is under way when a share passes from one to the other, and back, has one row."""
    first = Process(js, names, await stores())
    await first.hold()
    name = RECEIVERS[0]
    await journal.flush(opens(name), failed(1, receiver=name), receiver=name)
    await first.step()
    await in_database.lapse()
    other = Process(js, names, await stores())
    await other.hold()
    await journal.flush(failed(1, NOW + 3, attempt=2, receiver=name), receiver=name)
    await other.step()
    await in_database.lapse()
    with pytest.raises(LeaseLost):
        await first.step()
    await first.hold()
    await journal.flush(delivered(1, NOW + 6, attempt=3, receiver=name), receiver=name)
    await first.step()
    rows = await in_database.rows("SELECT sequence, attempts, ending FROM deliveries")
    assert rows == [(1, 3, 1)]
    assert await sequences(in_database) == {1: 3}
    assert (await in_database.rows("SELECT facts_since FROM receivers"))[0] == (4,)


async def test_the_turn_of_a_writer_that_lost_a_share_asks_what_it_holds(
    js: JetStream,
    names: Names,
    journal: JournalWriter,
    in_database: InDatabase,
    stores: Any,
    connected: None,
) -> None:
    """The writer continues instead of ending."""
    sleeper = Process(js, names, await stores())
    await sleeper.hold()
    await one_event_each(journal, 1)
    await in_database.lapse()
    other = Process(js, names, await stores())
    await other.hold()
    await in_database.lapse()

    running = asyncio.create_task(sleeper.writer.run())
    while await sequences(in_database) != {1: len(RECEIVERS)}:
        assert not running.done(), running.result()
        await asyncio.sleep(0.01)
    running.cancel()


async def test_a_text_with_nul_is_stored_with_a_mark(
    js: JetStream, names: Names, journal: JournalWriter, in_database: InDatabase, stores: Any
) -> None:
    one = Process(js, names, await stores())
    await one.hold()
    events = (numbered(1, type="a"),)
    await journal.flush(opens(), failed(1, answer="no\0thing", status=None, error="a\0b", events=events))
    await one.step()
    assert await in_database.rows("SELECT answer, error FROM attempts") == [("no\ufffdthing", "a\ufffdb")]
    assert await in_database.rows("SELECT last_error FROM receivers") == [("a\ufffdb",)]


async def test_dropping_a_block_waits_for_readers_and_delays_no_writer(
    one: Process, journal: JournalWriter, in_database: InDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((block, last, until),) = await in_database.rows("SELECT block, last, until FROM blocks")
    old = period_of(block)
    async with opened(Database(in_database.location), "somebody") as reader:
        await reader.execute("BEGIN")
        assert await reader.rows("SELECT sequence FROM attempts") == [(1,)]
        a_year_later = time.time_ns() + 366 * 24 * 3600 * 10**9  # The next block lies in another period.
        monkeypatch.setattr(LoopTiming, "wall_ns", lambda _: a_year_later)
        dropping = one.store.drop_block(Block(old, last, until, False))
        await anext(dropping)
        await journal.flush(delivered(2, NOW + 2))
        await one.step()  # While it is dropped, or waits to be.
        assert await in_database.rows("SELECT sequence FROM attempts WHERE sequence > 1") == [(2,)]
        await reader.execute("COMMIT")
    async for _ in dropping:
        await asyncio.sleep(0.001)
    assert await in_database.rows("SELECT sequence FROM attempts") == [(2,)]
    assert old not in [period for (period,) in await in_database.rows("SELECT period FROM periods")]


@pytest.mark.usefixtures("one")
async def test_a_drop_that_was_broken_off_is_ended_by_the_next(in_database: InDatabase) -> None:
    ((block,),) = await in_database.rows("SELECT block FROM blocks")
    old = period_of(block)
    database = Database(in_database.location)
    async with opened(database, "somebody") as reader:
        await reader.execute("BEGIN")
        await reader.rows("SELECT sequence FROM attempts")
        async with opened(database, "broken off", statement_timeout="300") as session:
            with pytest.raises(LedgerAway):  # It waits for the reader.
                await partitions.drop(session, old)
        assert await in_database.rows("SELECT sequence FROM attempts") == []
    async with opened(database, "another") as session:
        await partitions.drop(session, old)
    assert await in_database.rows("SELECT period FROM periods") == []


@pytest.mark.usefixtures("one")
async def test_partitions_that_another_process_drops_meanwhile_cause_no_error(
    in_database: InDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose connection was lost leaves a statement to PostgreSQL, which ends it in its own time."""
    ((block,),) = await in_database.rows("SELECT block FROM blocks")
    old, database = period_of(block), Database(in_database.location)
    async with opened(database, "one") as session, opened(database, "another") as other:
        look = session.rows

        async def look_early(query: str, *values: Any) -> list[Any]:
            found = await look(query, *values)
            if found:
                await partitions.drop(other, old)
            return found

        monkeypatch.setattr(session, "rows", look_early)
        await partitions.drop(session, old)
    assert await in_database.rows("SELECT period FROM periods") == []


async def test_a_statement_that_is_given_up_ends(in_database: InDatabase) -> None:
    """Otherwise it takes a processor for a minute, and a drop waits for its snapshot."""
    with pytest.raises(TimeoutError):
        async with (
            asyncio.timeout(0.5),
            opened(Database(in_database.location), "given up", statement_timeout="60000") as session,
        ):
            await session.rows("SELECT pg_sleep(60)")
    running = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'given up' AND state = 'active'"
    async with asyncio.timeout(20):
        while await in_database.rows(running) != [(0,)]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
